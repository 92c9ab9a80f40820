package main

import (
	"strings"
	"testing"
)

func TestPrimesAreCounted(t *testing.T) {
	for below, expected := range map[int]int{0: 0, 2: 0, 3: 1, 4: 2, 10: 4, 1000: 168} {
		if found := countPrimes(below); found != expected {
			t.Errorf("below %d: %d primes, not %d", below, found, expected)
		}
	}
}

func TestAbsentKeysHaveDefaults(t *testing.T) {
	params, err := readParams([]byte(`{"attempt": 1, "report": null}`))
	if err != nil || params != (Params{Below: 1000, Rounds: 1}) {
		t.Errorf("%+v, %v", params, err)
	}
}

func TestAnInvalidContextIsAnErrorThatNamesTheKey(t *testing.T) {
	for context, key := range map[string]string{
		`{"below": "many"}`: "`below`", `{"below": -1}`: "`below`", `{"rounds": 0}`: "`rounds`", `{"report": 7}`: "`report`",
	} {
		if _, err := readParams([]byte(context)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", context, err)
		}
	}
}

func TestTheReportIsNamedAfterTheSlot(t *testing.T) {
	if file := reportFile("/reports/", "2026-11-21T02:00:00Z"); file != "/reports/primes-2026-11-21T02-00-00Z.json" {
		t.Error(file)
	}
}
