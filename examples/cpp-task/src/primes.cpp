#include "primes.hpp"

#include <algorithm>
#include <vector>

#include "json.hpp"

std::variant<Order, BadContext> order_of(std::string_view context) {
    Order order;
    if (const auto value = json::find(context, "below")) {
        const auto number = json::whole_number(*value);
        if (!number || *number > SIZE_MAX) return BadContext{"`below` must be a whole number of at least 0"};
        order.below = static_cast<std::size_t>(*number);
    }
    if (const auto value = json::find(context, "rounds")) {
        const auto number = json::whole_number(*value);
        if (!number || *number == 0) return BadContext{"`rounds` must be a whole number of at least 1"};
        order.rounds = *number;
    }
    if (const auto value = json::find(context, "report")) {
        const auto folder = json::text(*value);
        if (!folder) return BadContext{"`report` must be the path of a folder"};
        order.report = *folder;
    }
    return order;
}

std::size_t count_primes(std::size_t below) {
    std::vector<unsigned char> composite(below);
    std::size_t primes = 0;
    for (std::size_t number = 2; number < below; number++) {
        if (composite[number]) continue;
        primes++;
        // The square cannot overflow in 64 bits.
        for (auto multiple = std::uint64_t{number} * number; multiple < below; multiple += number) {
            composite[static_cast<std::size_t>(multiple)] = true;
        }
    }
    return primes;
}

std::string report_file(std::string_view folder, std::string_view slot) {
    std::string name(slot);
    std::ranges::replace(name, ':', '-');
    while (folder.ends_with('/')) folder.remove_suffix(1);
    return std::string(folder) + "/primes-" + name + ".json";
}
