// The work itself: knows no host, and so is tested anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

// This task's own keys of the context. Others are left alone: the host has its own there.
struct Order {
    std::size_t below = 1000;
    std::uint64_t rounds = 1;
    // The folder of reports, as the sandbox shows it; empty when there is to be none.
    std::string report;
};

// One sentence: why the context is not what this task takes.
struct BadContext {
    std::string_view message;
};

std::variant<Order, BadContext> order_of(std::string_view context);

// The sieve of Eratosthenes: one byte of memory for each number.
std::size_t count_primes(std::size_t below);

// One name for each slot, so that a second run of it overwrites its report and adds none.
std::string report_file(std::string_view folder, std::string_view slot);
