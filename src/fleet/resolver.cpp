#include "fleet/resolver.hpp"

#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "net/event.hpp"

namespace fairlead::fleet {
namespace {

using Addresses = Result<std::vector<net::Address>>;

/// One look-up. The coroutine that waits owns the event; the answer arrives in the reactor.
struct Lookup {
  std::string host;
  std::uint16_t port = 0;
  std::optional<Addresses> answer;  // written and read in the reactor only
  net::Event done;
};

}  // namespace

/// Shared with the helper threads, which may outlive the resolver and its reactor.
class ThreadResolver::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(net::Reactor& reactor) : reactor_(&reactor) {}

  void close() {
    const std::lock_guard lock(mutex_);
    reactor_ = nullptr;
    waiting_.clear();
  }

  void submit(std::shared_ptr<Lookup> lookup) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(lookup));
      if (threads_ >= kMaxThreads) {
        return;
      }
      ++threads_;
    }
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    } catch (const std::system_error&) {
      // No thread to be had: look the name up here, late rather than never.
      work();
    }
  }

 private:
  void work() {
    while (std::shared_ptr<Lookup> lookup = take()) {
      // Host and port do not change once the look-up is submitted.
      Addresses addresses = net::resolve(lookup->host, lookup->port);
      if (addresses && addresses->empty()) {
        addresses = fail(ErrorCode::EngineUnreachable, "no address for " + lookup->host);
      }
      const std::lock_guard lock(mutex_);
      if (!reactor_) {
        --threads_;
        return;
      }
      reactor_->post([lookup = std::move(lookup), addresses = std::move(addresses)]() mutable {
        lookup->answer = std::move(addresses);
        lookup->done.set();
      });
    }
  }

  std::shared_ptr<Lookup> take() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      --threads_;
      return nullptr;
    }
    std::shared_ptr<Lookup> lookup = std::move(waiting_.front());
    waiting_.pop_front();
    return lookup;
  }

  std::mutex mutex_;
  net::Reactor* reactor_;                        // guarded by mutex_; null when closed
  std::deque<std::shared_ptr<Lookup>> waiting_;  // guarded by mutex_
  std::size_t threads_ = 0;                      // guarded by mutex_
};

ThreadResolver::ThreadResolver(net::Reactor& reactor) : impl_(std::make_shared<Impl>(reactor)) {}

ThreadResolver::~ThreadResolver() { impl_->close(); }

net::Task<Result<std::vector<net::Address>>> ThreadResolver::resolve(std::string host,
                                                                     std::uint16_t port) {
  if (const auto numeric = net::Address::parse(host, port)) {
    co_return std::vector<net::Address>{*numeric};
  }
  // Kept by the helper as well, so that a forgotten look-up has somewhere to put its answer.
  const auto lookup = std::make_shared<Lookup>();
  lookup->host = std::move(host);
  lookup->port = port;
  impl_->submit(lookup);
  co_await lookup->done.wait();
  co_return std::move(*lookup->answer);
}

}  // namespace fairlead::fleet
