#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "loadgen/run.hpp"

namespace fairlead::loadgen {
namespace {

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Pair {
  int sender = -1;
  int receiver = -1;
};

// A connected TCP pair over loopback; {-1, -1} when the system refuses.
Pair connected_pair(int listener, const sockaddr_in& address) {
  Pair pair;
  pair.sender = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(pair.sender, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(pair.sender);
    return {};
  }
  pair.receiver = accept(listener, nullptr, nullptr);
  const int on = 1;
  setsockopt(pair.sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return pair;
}

}  // namespace

std::string run_floor(int clients, int tokens, int bytes, double interval_ms) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener, clients) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    close(listener);
    return R"({"failed":"cannot listen"})";
  }
  std::vector<Pair> pairs;
  for (int i = 0; i < clients; ++i) {
    pairs.push_back(connected_pair(listener, address));
  }
  close(listener);
  std::vector<std::thread> readers;
  readers.emplace_back([&] {
    // One reader drains everything, as the load generator does.
    std::string buffer(1 << 16, '\0');
    std::vector<std::size_t> open(
        pairs.size(), static_cast<std::size_t>(tokens) * static_cast<std::size_t>(bytes));
    for (std::size_t left = pairs.size(); left > 0;) {
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (open[i] == 0) {
          continue;
        }
        const ssize_t count = recv(pairs[i].receiver, buffer.data(), buffer.size(), 0);
        open[i] = count <= 0 ? 0 : open[i] - std::min(open[i], static_cast<std::size_t>(count));
        left -= open[i] == 0;
      }
    }
  });
  const std::string payload(static_cast<std::size_t>(bytes), 'x');
  const double before = thread_cpu_seconds();
  auto due = std::chrono::steady_clock::now();
  for (int token = 0; token < tokens; ++token) {
    for (const Pair& pair : pairs) {
      send(pair.sender, payload.data(), payload.size(), MSG_NOSIGNAL);
    }
    due += std::chrono::microseconds(static_cast<std::int64_t>(interval_ms * 1000));
    std::this_thread::sleep_until(due);
  }
  const double cpu = thread_cpu_seconds() - before;
  for (std::thread& reader : readers) {
    reader.join();
  }
  for (const Pair& pair : pairs) {
    close(pair.sender);
    close(pair.receiver);
  }
  return fmt::format(R"({{"sends":{},"cpu_us_per_send":{:.3f}}})", clients * tokens,
                     cpu * 1e6 / (static_cast<double>(clients) * tokens));
}

}  // namespace fairlead::loadgen
