;; A task whose effects happen once. It needs no toolchain: the tests convert this text.
;;
;; Each call increments, in the session of the bucket `state`, the number under the id of its launch, and the number under
;; `count`. If the operator's config has `url`, it also sends a message there, whose body is the id of its launch, with a
;; header `authorization` if the config has one. If the config has `plain`, it also increments the id of its launch in the bucket `plain`, outside
;; of a session. If the config has `succeed_on`, one digit, each attempt before that number fails and may be retried.
(component
  (import "wasi:keyvalue/store@0.2.0-draft" (instance $store
    (export "bucket" (type (sub resource)))
    (type $e (variant (case "no-such-store") (case "access-denied") (case "other" string)))
    (export "error" (type $error (eq $e)))
    (export "open" (func (param "identifier" string) (result (result (own 0) (error $error)))))))
  (alias export $store "bucket" (type $bucket))
  (alias export $store "error" (type $bucket_error))
  (import "wasi:keyvalue/atomics@0.2.0-draft" (instance $atomics
    (alias outer 1 $bucket (type $b))
    (alias outer 1 $bucket_error (type $e))
    (export "increment" (func (param "bucket" (borrow $b)) (param "key" string) (param "delta" u64)
      (result (result u64 (error $e)))))))
  (import "campanile:task/session@0.1.0" (instance $session
    (alias outer 1 $bucket (type $b))
    (alias outer 1 $bucket_error (type $e))
    (export "open" (func (param "identifier" string) (result (result (own $b) (error $e)))))))
  (import "wasi:config/store@0.2.0-rc.1" (instance $config
    (type $e (variant (case "upstream" string) (case "io" string)))
    (export "error" (type $error (eq $e)))
    (export "get" (func (param "key" string) (result (result (option string) (error $error)))))))
  (import "campanile:task/outbox@0.1.0" (instance $outbox
    (type $m (record (field "method" string) (field "url" string)
      (field "headers" (list (tuple string string))) (field "body" (list u8))))
    (export "message" (type $message (eq $m)))
    (type $e (variant (case "access-denied") (case "refused" string)))
    (export "error" (type $error (eq $e)))
    (export "send" (func (param "message" $message) (result (result string (error $error)))))))
  (import "campanile:task/run-info@0.1.0" (instance $info
    (export "execution-id" (func (result string)))
    (export "attempt" (func (result u32)))))

  (core module $heap
    (memory (export "memory") 4)
    (global $free (mut i32) (i32.const 131072))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $heap (instantiate $heap))
  (alias core export $heap "memory" (core memory $memory))
  (core func $realloc (alias core export $heap "realloc"))

  (core func $open_plain (canon lower (func $store "open") (memory $memory) (realloc $realloc)))
  (core func $open_session (canon lower (func $session "open") (memory $memory) (realloc $realloc)))
  (core func $increment (canon lower (func $atomics "increment") (memory $memory) (realloc $realloc)))
  (core func $config_get (canon lower (func $config "get") (memory $memory) (realloc $realloc)))
  (core func $execution_id (canon lower (func $info "execution-id") (memory $memory) (realloc $realloc)))
  (core func $send (canon lower (func $outbox "send") (memory $memory) (realloc $realloc)))
  (core func $attempt (canon lower (func $info "attempt")))

  (core module $code
    (import "heap" "memory" (memory 4))
    (import "host" "open_plain" (func $open_plain (param i32 i32 i32)))
    (import "host" "open_session" (func $open_session (param i32 i32 i32)))
    (import "host" "increment" (func $increment (param i32 i32 i32 i64 i32)))
    (import "host" "config_get" (func $config_get (param i32 i32 i32)))
    (import "host" "execution_id" (func $execution_id (param i32)))
    (import "host" "send" (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "attempt" (func $attempt (result i32)))

    ;; Memory: answers of the host from 64, texts from 1024, the result at 4096.
    (data (i32.const 1024) "state")
    (data (i32.const 1040) "plain")
    (data (i32.const 1056) "count")
    (data (i32.const 1072) "succeed_on")
    (data (i32.const 1100) "the host refused it")
    (data (i32.const 1130) "it is too early")
    (data (i32.const 1150) "POST")
    (data (i32.const 1160) "url")
    (data (i32.const 1170) "authorization")

    ;; The result: a failure with the text at $message.
    (func $failure (param $message i32) (param $length i32) (param $retryable i32) (result i32)
      (i32.store8 (i32.const 4096) (i32.const 1))
      (i32.store (i32.const 4104) (local.get $message))
      (i32.store (i32.const 4108) (local.get $length))
      (i32.store8 (i32.const 4112) (local.get $retryable))
      (i32.const 4096))
    (func $refused (result i32)
      (call $failure (i32.const 1100) (i32.const 19) (i32.const 0)))

    ;; Whether the config has a value of this name. The address of the value is at 72 then.
    (func $is_configured (param $name i32) (param $length i32) (result i32)
      (call $config_get (local.get $name) (local.get $length) (i32.const 64))
      (i32.and
        (i32.eqz (i32.load8_u (i32.const 64)))
        (i32.load8_u (i32.const 68))))

    (func (export "run") (param i32 i32 i32 i32) (result i32)
      (local $bucket i32) (local $id i32) (local $id_length i32)
      (local $url i32) (local $url_length i32) (local $headers i32)
      (call $execution_id (i32.const 64))
      (local.set $id (i32.load (i32.const 64)))
      (local.set $id_length (i32.load (i32.const 68)))
      (call $open_session (i32.const 1024) (i32.const 5) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $refused))))
      (local.set $bucket (i32.load (i32.const 68)))
      (call $increment (local.get $bucket) (local.get $id) (local.get $id_length) (i64.const 1) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $refused))))
      (call $increment (local.get $bucket) (i32.const 1056) (i32.const 5) (i64.const 1) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $refused))))
      (if (call $is_configured (i32.const 1160) (i32.const 3)) (then
        (local.set $url (i32.load (i32.const 72)))
        (local.set $url_length (i32.load (i32.const 76)))
        ;; One header at 2048: its name and its value.
        (if (call $is_configured (i32.const 1170) (i32.const 13)) (then
          (i32.store (i32.const 2048) (i32.const 1170))
          (i32.store (i32.const 2052) (i32.const 13))
          (i32.store (i32.const 2056) (i32.load (i32.const 72)))
          (i32.store (i32.const 2060) (i32.load (i32.const 76)))
          (local.set $headers (i32.const 1))))
        (call $send (i32.const 1150) (i32.const 4) (local.get $url) (local.get $url_length)
          (i32.const 2048) (local.get $headers) (local.get $id) (local.get $id_length) (i32.const 64))
        (if (i32.load8_u (i32.const 64)) (then
          ;; `refused` has a text.
          (if (i32.load8_u (i32.const 68)) (then
            (return (call $failure (i32.load (i32.const 72)) (i32.load (i32.const 76)) (i32.const 0)))))
          (return (call $refused))))))
      (if (call $is_configured (i32.const 1040) (i32.const 5)) (then
        (call $open_plain (i32.const 1040) (i32.const 5) (i32.const 64))
        (if (i32.load8_u (i32.const 64)) (then (return (call $refused))))
        (local.set $bucket (i32.load (i32.const 68)))
        (call $increment (local.get $bucket) (local.get $id) (local.get $id_length) (i64.const 1) (i32.const 64))
        (if (i32.load8_u (i32.const 64)) (then (return (call $refused))))))
      (if (call $is_configured (i32.const 1072) (i32.const 10)) (then
        (if (i32.lt_u (i32.add (call $attempt) (i32.const 48)) (i32.load8_u (i32.load (i32.const 72)))) (then
          (return (call $failure (i32.const 1130) (i32.const 15) (i32.const 1)))))))
      (i32.const 4096)))
  (core instance $code (instantiate $code
    (with "heap" (instance $heap))
    (with "host" (instance
      (export "open_plain" (func $open_plain))
      (export "open_session" (func $open_session))
      (export "increment" (func $increment))
      (export "config_get" (func $config_get))
      (export "execution_id" (func $execution_id))
      (export "send" (func $send))
      (export "attempt" (func $attempt))))))

  (type $completion (record (field "output" (option string)) (field "context" (option string))))
  (type $failure (record (field "message" string) (field "retryable" bool)
    (field "retry-after-ms" (option u64)) (field "details" (option string))))
  (func $run (param "task" string) (param "context" string) (result (result $completion (error $failure)))
    (canon lift (core func $code "run") (memory $memory) (realloc $realloc)))
  (component $task
    (type $completion (record (field "output" (option string)) (field "context" (option string))))
    (type $failure (record (field "message" string) (field "retryable" bool)
      (field "retry-after-ms" (option u64)) (field "details" (option string))))
    (import "completion" (type $c (eq $completion)))
    (import "failure" (type $f (eq $failure)))
    (import "run" (func $run (param "task" string) (param "context" string) (result (result $c (error $f)))))
    (export $ec "completion" (type $c))
    (export $ef "failure" (type $f))
    (export "run" (func $run)
      (func (param "task" string) (param "context" string) (result (result $ec (error $ef))))))
  (instance $exported (instantiate $task (with "run" (func $run))
    (with "completion" (type $completion)) (with "failure" (type $failure))))
  (export "campanile:task/task@0.1.0" (instance $exported)))
