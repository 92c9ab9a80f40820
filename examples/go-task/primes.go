package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Params has the task's keys of the context. Other keys are ignored, because the host sets some.
type Params struct {
	Below  int    `json:"below"`
	Rounds uint64 `json:"rounds"`
	Report string `json:"report"`
}

// readParams reads the task's keys, with their defaults.
func readParams(context []byte) (Params, error) {
	params := Params{Below: 1000, Rounds: 1}
	if err := json.Unmarshal(context, &params); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return params, fmt.Errorf("`%s` must be of type %s, not a %s", wrong.Field, wrong.Type, wrong.Value)
		}
		return params, err
	}
	if params.Below < 0 {
		return params, fmt.Errorf("`below` must be at least 0, not %d", params.Below)
	}
	if params.Rounds < 1 {
		return params, errors.New("`rounds` must be at least 1")
	}
	return params, nil
}

// countPrimes counts the primes with the sieve of Eratosthenes. It needs one byte of memory for each number.
func countPrimes(below int) int {
	if below < 3 {
		return 0
	}
	composite := make([]bool, below)
	primes := 0
	for number := 2; number < below; number++ {
		if composite[number] {
			continue
		}
		primes++
		for multiple := number * number; multiple < below; multiple += number {
			composite[multiple] = true
		}
	}
	return primes
}

// reportFile returns the file name of a slot's report. A repeated run overwrites the report.
func reportFile(folder, slot string) string {
	return strings.TrimRight(folder, "/") + "/primes-" + strings.ReplaceAll(slot, ":", "-") + ".json"
}
