// The work itself. It needs no host, so its tests run anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

// This task's keys of the context. It ignores other keys: some are the host's.
struct Order {
    std::size_t below = 1000;
    std::uint64_t rounds = 1;
    // The folder of reports in the sandbox; empty for no report.
    std::string report;
};

// One sentence that says what is wrong with the context.
struct BadContext {
    std::string_view message;
};

std::variant<Order, BadContext> order_of(std::string_view context);

// The sieve of Eratosthenes: one byte of memory for each number.
std::size_t count_primes(std::size_t below);

// One name for each slot: a repeated run overwrites its report.
std::string report_file(std::string_view folder, std::string_view slot);
