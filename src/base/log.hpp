#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

// Logging facade: lines go into a bounded ring that one thread writes to stderr. A full ring drops
// and counts, so a stuck stderr never blocks a reactor. Callable from any thread.

namespace fairlead::log {

/// Severity, lowest first.
enum class Level : std::uint8_t {
  Trace,  ///< Per message or frame.
  Debug,  ///< Per request.
  Info,   ///< Per change of state.
  Warn,   ///< Something degraded; serving goes on.
  Error,  ///< Something failed that an operator must look at.
  Off,    ///< Nothing is written.
};

namespace detail {
extern std::atomic<Level> level;
void submit(Level level, std::string&& line);
}  // namespace detail

/// Starts the writer thread (idempotent). Without it lines go to stderr directly, which suits
/// tests.
void start(Level level);

/// How long `stop` waits for what the ring holds, unless told otherwise.
inline constexpr std::chrono::milliseconds kFlushTime = std::chrono::seconds(1);

/// Flushes what the ring holds and stops the writer thread. False when stderr takes it too slowly,
/// or not at all: the thread is left behind inside of stderr, whose lock makes `exit` wait for
/// ever, so the process must end with `_Exit`.
[[nodiscard]] bool stop(std::chrono::milliseconds time = kFlushTime);

/// Writes a text to stderr as it is, for a person, behind the lines before it. Like a line it never
/// blocks its caller while the writer thread runs; no level hides it.
void print(std::string text);

/// Parses `trace`, `debug`, `info`, `warn`, `error` or `off`; false when `text` is none of them.
bool parse_level(std::string_view text, Level& out);

/// Lines dropped because the ring was full, since the start of the process.
std::uint64_t dropped();

/// True when a line of this severity would be written.
inline bool enabled(Level wanted) {
  return wanted >= detail::level.load(std::memory_order_relaxed);
}

/// Formats and submits one line; newlines inside it are escaped by the writer.
template <class... Args>
void write(Level severity, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(severity)) {
    detail::submit(severity, fmt::format(format, std::forward<Args>(args)...));
  }
}

/// Developer detail, off by default.
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Debug, format, std::forward<Args>(args)...);
}

/// Normal events that an operator wants to see once.
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Info, format, std::forward<Args>(args)...);
}

/// Something degraded.
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Warn, format, std::forward<Args>(args)...);
}

/// Something failed that needs a person.
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Error, format, std::forward<Args>(args)...);
}

}  // namespace fairlead::log
