// Counts primes: an ordinary program. It reads its context from stdin and prints its output on stdout.
// It uses C's stdio, because <iostream> would make the file six times as large.

#include <cstdio>
#include <string>

#include "json.hpp"
#include "primes.hpp"

// Exit codes. All codes but 0 are failures, with the last line on stderr as the message.
enum Exit { DONE = 0, FAILED = 1, BAD_CONTEXT = 65 };

static std::string read_context() {
    std::string context;
    char some[4096];
    while (const auto length = std::fread(some, 1, sizeof some, stdin)) context.append(some, length);
    return context;
}

// Return the JSON value of a key that the host sets in every context.
static std::string fact(std::string_view context, std::string_view key) {
    return std::string(json::find(context, key).value_or("null"));
}

static bool write_file(const std::string& path, const std::string& contents) {
    const auto file = std::fopen(path.c_str(), "w");
    return file && std::fputs(contents.c_str(), file) >= 0 && std::fclose(file) == 0;
}

int main() {
    const auto context = read_context();
    const auto read = order_of(context);
    if (const auto bad = std::get_if<BadContext>(&read)) {
        std::fprintf(stderr, "the context: %s\n", bad->message.data());
        return BAD_CONTEXT;
    }
    const auto& order = std::get<Order>(read);
    std::size_t primes = 0;
    // Without enough memory the program aborts here, because it has no exceptions.
    for (std::uint64_t round = 0; round < order.rounds; round++) primes = count_primes(order.below);

    const auto slot = fact(context, "original_scheduled_time");
    const auto counted = "{\"below\":" + std::to_string(order.below) + ",\"primes\":" + std::to_string(primes) +
                         ",\"slot\":" + slot;
    if (!order.report.empty()) {
        // The slot is the same for every run of this launch, however late the run is.
        const auto path = report_file(order.report, json::text(slot).value_or(""));
        // The result does not depend on the run, so a repeated run leaves the same result.
        if (!write_file(path, counted + "}\n")) {
            std::perror((path + " cannot be written").c_str());
            return FAILED;
        }
    }
    const auto result = counted + ",\"is_recovery\":" + fact(context, "is_recovery") +
                        ",\"attempt\":" + fact(context, "attempt") + "}\n";
    std::fputs(result.c_str(), stdout);
    return DONE;
}
