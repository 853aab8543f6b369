#include "base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace fairlead::log {

std::atomic<Level> detail::level{Level::Info};

namespace {

constexpr std::size_t kRingLines = 8192;
constexpr std::size_t kMaxLineBytes = 16 * 1024;

spdlog::level::level_enum to_spdlog(Level level) {
  constexpr std::array kMap{spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                            spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};
  return kMap[static_cast<std::size_t>(level)];
}

// One line of a log must stay one line, whatever bytes a client managed to put into it.
std::string escaped(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  for (const char c : line.substr(0, kMaxLineBytes)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
  return out;
}

struct Writer {
  struct Line {
    Level level;
    std::chrono::system_clock::time_point time;
    std::string text;
    bool plain = false;
  };

  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable drained;
  std::deque<Line> ring;
  bool running = false;
  bool stopping = false;
  std::atomic<std::uint64_t> dropped{0};
  std::thread thread;
  spdlog::sinks::ansicolor_stderr_sink_mt sink;

  Writer() {
    sink.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%e %^%-5l%$ %v", spdlog::pattern_time_type::utc));
  }

  void emit(const Line& line) {
    if (line.plain) {
      std::fwrite(line.text.data(), 1, line.text.size(), stderr);
      std::fflush(stderr);
      return;
    }
    const std::string text = escaped(line.text);
    sink.log(spdlog::details::log_msg(line.time, {}, "fairlead", to_spdlog(line.level), text));
    sink.flush();
  }

  void submit(Line&& line) {
    const std::lock_guard lock(mutex);
    if (!running) {
      emit(line);
      return;
    }
    if (ring.size() >= kRingLines) {
      dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    ring.push_back(std::move(line));
    if (ring.size() == 1) {
      wake.notify_one();
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || !ring.empty(); });
      if (ring.empty()) {
        break;
      }
      std::deque<Line> batch;
      batch.swap(ring);
      lock.unlock();
      for (const Line& line : batch) {
        emit(line);
      }
      lock.lock();
    }
    running = false;
    drained.notify_all();
  }
};

// Never destroyed: lines may be logged while statics go away.
Writer& writer() {
  static Writer& instance = *new Writer;
  return instance;
}

}  // namespace

void detail::submit(Level severity, std::string&& line) {
  writer().submit({severity, std::chrono::system_clock::now(), std::move(line)});
}

void print(std::string text) {
  writer().submit({Level::Off, std::chrono::system_clock::now(), std::move(text), true});
}

void start(Level level) {
  detail::level.store(level, std::memory_order_relaxed);
  Writer& w = writer();
  const std::lock_guard lock(w.mutex);
  if (w.running) {
    return;
  }
  w.running = true;
  w.stopping = false;
  w.thread = std::thread([&w] { w.run(); });
}

bool stop(std::chrono::milliseconds time) {
  Writer& w = writer();
  std::unique_lock lock(w.mutex);
  if (!w.thread.joinable()) {
    return true;
  }
  w.stopping = true;
  w.wake.notify_all();
  const bool done = w.drained.wait_for(lock, time, [&] { return !w.running; });
  lock.unlock();
  if (done) {
    w.thread.join();
  } else {
    w.thread.detach();  // stderr is stuck: leaving matters more than the last lines
  }
  return done;
}

bool parse_level(std::string_view text, Level& out) {
  constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info",
                                                   "warn",  "error", "off"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) {
      out = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

std::uint64_t dropped() { return writer().dropped.load(std::memory_order_relaxed); }

}  // namespace fairlead::log
