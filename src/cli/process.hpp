#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "net/reactor.hpp"

namespace fairlead::cli {

/// Prepares the process for serving: SIGPIPE ignored, SIGTERM, SIGINT, SIGQUIT and SIGHUP
/// blocked so that only `SignalWatcher` takes them; SIGHUP stays ignored if it was (`nohup`). Call
/// before any thread starts.
void prepare_signals();

/// Receives SIGTERM, SIGINT, SIGQUIT and SIGHUP as ordinary events of a reactor.
class SignalWatcher final : private net::IoHandler {
 public:
  /// `on_signal` runs in the reactor's turn for every signal. The reactor outlives the watcher.
  SignalWatcher(net::Reactor& reactor, std::function<void(int signal)> on_signal);
  ~SignalWatcher() override;
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void on_io(std::uint32_t events) override;

  net::Reactor& reactor_;
  std::function<void(int)> on_signal_;
  int fd_;
};

/// For ExitGuard. Ending takes milliseconds; whoever asked for it is not kept waiting by a thread
/// that is stuck, and even less so who asked twice.
inline constexpr net::Duration kEndGrace = std::chrono::milliseconds(1500);
inline constexpr net::Duration kSecondSignalGrace = std::chrono::milliseconds(700);  ///< Likewise.

/// Ends the process with `code`, whatever its threads do, unless it is destroyed within `grace`.
class ExitGuard {
 public:
  /// The time begins now.
  ExitGuard(net::Duration grace, int code);
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

 private:
  bool wait(net::Duration time);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

/// From here on the watched signals end the process at once, with `code` and whatever its threads
/// do; one that waits unseen does so now. To be called by the main thread when it has done its
/// work.
void end_at_signal(int code);

/// Ends a long-running command: reports `failure`, if there is one, as `report` does, and stops the
/// log. Returns the exit code; when stderr does not take the log, the process ends here, within
/// a second or, `hurried`, a tenth of one.
int end_command(std::string_view command, const std::optional<Error>& failure,
                bool hurried = false);

/// Raises the soft limit of open files to `wanted`, or to the hard limit when that is lower; 0
/// leaves it. Returns the limit in force.
std::uint64_t raise_fd_limit(std::uint64_t wanted);

/// Writes the one line of stdout that says a long-running command is ready.
void print_ready(std::string_view json);

/// Starts the log at the level of the option `log-level`.
void start_log(const Settings& settings);

}  // namespace fairlead::cli
