// The task's logic. It needs no host, so its tests run natively.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

// The task's keys of the context. Other keys are ignored, because the host sets some.
struct Order {
    std::size_t below = 1000;
    std::uint64_t rounds = 1;
    // The folder of reports in the sandbox; empty for no report.
    std::string report;
};

// The reason why the context is invalid, in one sentence.
struct BadContext {
    std::string_view message;
};

std::variant<Order, BadContext> order_of(std::string_view context);

// Count the primes with the sieve of Eratosthenes. It needs one byte of memory for each number.
std::size_t count_primes(std::size_t below);

// Return the file name of a slot's report. A repeated run overwrites the report.
std::string report_file(std::string_view folder, std::string_view slot);
