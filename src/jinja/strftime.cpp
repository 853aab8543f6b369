#include <array>
#include <charconv>
#include <chrono>
#include <ctime>

#include "jinja/args.hpp"
#include "jinja/builtins.hpp"

namespace fairlead::jinja {
namespace {

struct LocalTime {
  std::tm fields{};
  int microseconds = 0;
};

bool read(std::string_view& text, std::size_t digits, int& out) {
  if (text.size() < digits) {
    return false;
  }
  const auto parsed = std::from_chars(text.data(), text.data() + digits, out);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + digits) {
    return false;
  }
  text.remove_prefix(digits);
  return true;
}

bool skip(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == std::string_view::npos) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

// `2026-01-15`, then optionally `T12:34`, `:56` and `.789`.
bool parse_iso(std::string_view text, LocalTime& out) {
  std::tm& t = out.fields;
  if (!read(text, 4, t.tm_year) || !skip(text, "-") || !read(text, 2, t.tm_mon) ||
      !skip(text, "-") || !read(text, 2, t.tm_mday)) {
    return false;
  }
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  if (skip(text, "T ")) {
    if (!read(text, 2, t.tm_hour) || !skip(text, ":") || !read(text, 2, t.tm_min)) {
      return false;
    }
    if (skip(text, ":") && !read(text, 2, t.tm_sec)) {
      return false;
    }
    if (skip(text, ".,")) {
      int scale = 100'000;
      while (!text.empty() && text[0] >= '0' && text[0] <= '9' && scale > 0) {
        out.microseconds += (text[0] - '0') * scale;
        scale /= 10;
        text.remove_prefix(1);
      }
    }
  }
  const bool in_range = t.tm_mon >= 0 && t.tm_mon < 12 && t.tm_mday >= 1 && t.tm_mday <= 31 &&
                        t.tm_hour >= 0 && t.tm_hour < 24 && t.tm_min >= 0 && t.tm_min < 60 &&
                        t.tm_sec >= 0 && t.tm_sec < 60;
  if (!text.empty() || !in_range) {
    return false;
  }
  // Weekday and day of the year.
  std::tm copy = t;
  timegm(&copy);
  t.tm_wday = copy.tm_wday;
  t.tm_yday = copy.tm_yday;
  t.tm_isdst = -1;
  return true;
}

LocalTime clock_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  LocalTime out;
  localtime_r(&seconds, &out.fields);
  const auto part = std::chrono::duration_cast<std::chrono::microseconds>(
      now - std::chrono::system_clock::from_time_t(seconds));
  out.microseconds = static_cast<int>(part.count());
  return out;
}

// Python fills in %f, %z and %Z of a naive time itself and leaves the rest to the C library.
std::string own_directives(std::string_view format, int microseconds) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      const std::string digits = std::to_string(microseconds);
      out += std::string(6 - digits.size(), '0') + digits;
    } else if (directive != 'z' && directive != 'Z') {
      out += '%';
      out += directive;
    }
  }
  return out;
}

}  // namespace

Value strftime_now(Runtime& runtime, const CallArgs& args) {
  const Bound<1> bound(runtime, "strftime_now", args, {"format"}, 1);
  const auto format = bound ? bound.text(0, {}) : std::nullopt;
  if (!format) {
    return Value::missing();
  }
  constexpr std::size_t kMaxFormat = 1024;
  if (format->size() > kMaxFormat) {
    return runtime.fail("the time format is too long");
  }
  LocalTime now;
  if (runtime.now()) {
    if (!parse_iso(*runtime.now(), now)) {
      return runtime.fail("Invalid isoformat string: '" + *runtime.now() + "'");
    }
  } else {
    now = clock_now();
  }
  // A leading mark tells an empty result from one that did not fit.
  const std::string pattern = "x" + own_directives(*format, now.microseconds);
  std::string buffer(8 * kMaxFormat, '\0');
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &now.fields);
#pragma clang diagnostic pop
  if (size == 0) {
    return runtime.fail("the formatted time is too long");
  }
  return runtime.string(std::string_view(buffer).substr(1, size - 1));
}

}  // namespace fairlead::jinja
