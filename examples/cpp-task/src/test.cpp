// Native tests of the task's logic. The program prints nothing and returns 0 when they pass.

#include <cstdio>
#include <cstdlib>

#include "json.hpp"
#include "primes.hpp"

// A release build removes `assert`.
#define CHECK(holds)                                                                   \
    do {                                                                               \
        if (!(holds)) {                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds);   \
            std::exit(1);                                                              \
        }                                                                              \
    } while (0)

static bool refused(std::string_view context, std::string_view key) {
    const auto read = order_of(context);
    const auto bad = std::get_if<BadContext>(&read);
    return bad && bad->message.starts_with(key);
}

int main() {
    CHECK(count_primes(0) == 0 && count_primes(2) == 0 && count_primes(3) == 1);
    CHECK(count_primes(4) == 2 && count_primes(10) == 4 && count_primes(1000) == 168);

    auto order = std::get<Order>(order_of(R"({"schedule": {"below": 7, "x": ["}", {}]}, "report": null})"));
    CHECK(order.below == 1000 && order.rounds == 1 && order.report.empty());
    order = std::get<Order>(order_of(R"( { "below" : 10, "note": "\"below\": 3", "report": "\/out"})"));
    CHECK(order.below == 10 && order.report == "/out");
    CHECK(refused(R"({"below": "many"})", "`below`") && refused(R"({"below": -1})", "`below`"));
    CHECK(refused(R"({"below": 1.5})", "`below`") && refused(R"({"rounds": 0})", "`rounds`"));
    CHECK(refused(R"({"report": 7})", "`report`"));

    CHECK(report_file("/reports/", "2026-11-21T02:00:00Z") == "/reports/primes-2026-11-21T02-00-00Z.json");
    CHECK(!json::find("[1]", "a") && !json::find("{\"a\"", "a") && !json::find("", "a"));
}
