// A minimal JSON parser, which finds the values of an object's keys.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace json {

constexpr std::string_view BLANKS = " \t\r\n";

inline void skip_blanks(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(BLANKS), text.size()));
}

// Return the JSON string at the start of `text`, with its quotes, or all of `text` when it is truncated.
inline std::string_view take_text(std::string_view& text) {
    std::size_t end = 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    auto taken = text.substr(0, end + 1);
    text.remove_prefix(taken.size());
    return taken;
}

// Return the JSON value at the start of `text`.
inline std::string_view take_value(std::string_view& text) {
    const auto all = text;
    int depth = 0;
    do {
        skip_blanks(text);
        if (text.empty()) break;
        if (text.front() == '"') {
            take_text(text);
        } else if (std::string_view("{[,:]}").find(text.front()) != std::string_view::npos) {
            depth += text.front() == '{' || text.front() == '[';
            depth -= text.front() == '}' || text.front() == ']';
            text.remove_prefix(1);
        } else {
            text.remove_prefix(std::min(text.find_first_of(",:]}\" \t\r\n"), text.size()));
        }
    } while (depth > 0);
    return all.substr(0, all.size() - text.size());
}

// Return the value of `key` in the object `text`. Keys of inner objects are ignored. Null counts as absent.
inline std::optional<std::string_view> find(std::string_view text, std::string_view key) {
    skip_blanks(text);
    if (!text.starts_with('{')) return {};
    do {
        text.remove_prefix(1);
        skip_blanks(text);
        if (!text.starts_with('"')) return {};
        const auto name = take_text(text);
        skip_blanks(text);
        if (!text.starts_with(':')) return {};
        text.remove_prefix(1);
        skip_blanks(text);
        const auto value = take_value(text);
        if (name.size() == key.size() + 2 && name.substr(1, key.size()) == key) {
            return value == "null" ? std::nullopt : std::optional(value);
        }
        skip_blanks(text);
    } while (text.starts_with(','));
    return {};
}

inline std::optional<std::uint64_t> whole_number(std::string_view value) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) return {};
    return number;
}

// Escapes of characters beyond ASCII are not supported, because the paths and times of this task have none.
inline std::optional<std::string> text(std::string_view value) {
    if (value.size() < 2 || value.front() != '"' || value.back() != '"') return {};
    value = value.substr(1, value.size() - 2);
    std::string plain;
    for (std::size_t at = 0; at < value.size(); at++) {
        if (value[at] == '\\' && std::string_view("\"\\/").find(value[++at]) == std::string_view::npos) return {};
        plain += value[at];
    }
    return plain;
}

}  // namespace json
