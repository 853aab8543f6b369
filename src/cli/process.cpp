#include "cli/process.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "cli/command.hpp"

namespace fairlead::cli {
namespace {

// For the log's thread to write the last line.
constexpr net::Duration kLogPause = std::chrono::milliseconds(100);
// For a log that is stopped after a second signal.
constexpr std::chrono::milliseconds kHurriedFlush(100);

volatile std::sig_atomic_t code_at_signal = 0;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGQUIT);
  // Ignored at the start, as `nohup` does it, a lost terminal is meant to change nothing.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&set, SIGHUP);
  }
  return set;
}

}  // namespace

void prepare_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatcher::SignalWatcher(net::Reactor& reactor, std::function<void(int signal)> on_signal)
    : reactor_(reactor), on_signal_(std::move(on_signal)) {
  const sigset_t set = watched_signals();
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0 || !reactor_.add(fd_, *this)) {
    log::error("signals cannot be watched: SIGTERM and its like have no effect");
  }
}

SignalWatcher::~SignalWatcher() {
  if (fd_ >= 0) {
    reactor_.remove(fd_, *this);
    close(fd_);
  }
}

void SignalWatcher::on_io(std::uint32_t events) {
  static_cast<void>(events);
  signalfd_siginfo info{};
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    on_signal_(static_cast<int>(info.ssi_signo));
  }
}

ExitGuard::ExitGuard(net::Duration grace, int code) {
  thread_ = std::thread([this, grace, code] {
    pthread_setname_np(pthread_self(), "exit guard");
    if (wait(grace)) {
      return;
    }
    log::warn("some threads do not end: the process ends without them");
    if (!wait(kLogPause)) {
      std::_Exit(code);
    }
  });
}

ExitGuard::~ExitGuard() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool ExitGuard::wait(net::Duration time) {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, time, [this] { return ended_; });
}

void end_at_signal(int code) {
  code_at_signal = code;
  struct sigaction action{};
  action.sa_handler = [](int) { _exit(code_at_signal); };
  const sigset_t set = watched_signals();
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
    if (sigismember(&set, signal) == 1) {
      sigaction(signal, &action, nullptr);
    }
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int end_command(std::string_view command, const std::optional<Error>& failure, bool hurried) {
  int code = kExitDone;
  if (failure) {
    code = exit_code(*failure);
    log::print(error_line(command, *failure));
  }
  end_at_signal(code);
  if (!log::stop(hurried ? kHurriedFlush : log::kFlushTime)) {
    std::_Exit(code);
  }
  return code;
}

std::uint64_t raise_fd_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 0;
  }
  const rlim_t target = std::min<rlim_t>(wanted, limit.rlim_max);
  if (wanted > 0 && target > limit.rlim_cur) {
    rlimit raised = limit;
    raised.rlim_cur = target;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
      return target;
    }
  }
  return limit.rlim_cur;
}

void print_ready(std::string_view json) {
  std::string line(json);
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
  std::clearerr(stdout);  // nobody has to read it: serving goes on, and ends as it ends
}

void start_log(const Settings& settings) {
  log::Level level = log::Level::Info;
  log::parse_level(settings.text("log-level"), level);
  log::start(level);
}

}  // namespace fairlead::cli
