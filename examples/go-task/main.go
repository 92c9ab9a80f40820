// Counts primes: an ordinary program. It reads its context from stdin and prints its output on stdout.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// The exit code of a failure that the host does not retry.
const badContext = 65

// Facts are what the host says about the run. The slot is the same for every run of a launch.
type Facts struct {
	Slot       string `json:"original_scheduled_time"`
	IsRecovery bool   `json:"is_recovery"`
	Attempt    int    `json:"attempt"`
}

// Result does not depend on the run, so a repeated run leaves the same result.
type Result struct {
	Below  int    `json:"below"`
	Primes int    `json:"primes"`
	Slot   string `json:"slot"`
}

func main() {
	context, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(1, "the context cannot be read: %v", err)
	}
	params, err := readParams(context)
	if err != nil {
		fail(badContext, "the context: %v", err)
	}
	var facts Facts
	if err := json.Unmarshal(context, &facts); err != nil {
		fail(badContext, "the context: %v", err)
	}
	primes := 0
	for round := uint64(0); round < params.Rounds; round++ {
		primes = countPrimes(params.Below)
	}
	result := Result{params.Below, primes, facts.Slot}
	if params.Report != "" {
		file := reportFile(params.Report, facts.Slot)
		if err := os.WriteFile(file, encode(result), 0o644); err != nil {
			fail(1, "the report cannot be written: %v", err)
		}
	}
	fmt.Println(string(encode(struct {
		Result
		IsRecovery bool `json:"is_recovery"`
		Attempt    int  `json:"attempt"`
	}{result, facts.IsRecovery, facts.Attempt})))
}

// encode returns a value as JSON. Values of these types can always be encoded.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// fail ends the program. The last line on stderr is recorded as the message.
func fail(code int, format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(code)
}
