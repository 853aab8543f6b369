// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/grpc.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"

// A server that sends whatever it likes to a gRPC channel: every call ends exactly once, or is
// still running when it is destroyed. The first byte chooses the cuts; SETTINGS come first so that
// the calls begin, unless the second byte is odd.

namespace {

using namespace fairlead;       // NOLINT(google-build-using-namespace)
using namespace fairlead::net;  // NOLINT(google-build-using-namespace)

class FuzzDialer final : public Dialer {
 public:
  explicit FuzzDialer(std::size_t max_read) : max_read_(max_read) {}
  Task<Result<std::unique_ptr<Stream>>> connect(Address, TimePoint) override {
    if (far) {
      co_return fail(ErrorCode::EngineUnreachable, "one connection only");
    }
    auto [near, other] = make_pipe(max_read_, 1024 * 1024);
    far = std::move(other);
    co_return std::move(near);
  }
  std::unique_ptr<Stream> far;

 private:
  std::size_t max_read_;
};

struct Observer final : grpc::CallObserver {
  void on_message(std::string_view message) override {
    if (ended || message.size() > 4096) {
      std::abort();
    }
    bytes += message.size();
  }
  void on_end(const grpc::Status&) override {
    if (ended) {
      std::abort();
    }
    ended = true;
  }
  bool ended = false;
  std::size_t bytes = 0;
};

void write_all(Stream& stream, std::string_view bytes) {
  const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  stream.write({&piece, 1});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 64 * 1024) {
    return 0;
  }
  using std::chrono::seconds;
  static Reactor reactor;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t max_read = data[0] % 16 == 0 ? 0 : data[0] % 16 * data[0] % 251 + 1;
  FuzzDialer dialer(max_read);
  std::unique_ptr<grpc::Channel> channel;
  std::vector<std::unique_ptr<Observer>> observers;
  std::vector<std::unique_ptr<grpc::Call>> calls;
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      reactor.run_turn(seconds(0));
    }
  };
  reactor.post([&] {
    grpc::ChannelOptions options;
    options.max_message_bytes = 4096;
    channel = std::make_unique<grpc::Channel>(
        dialer, "fuzz", std::vector{*Address::parse("127.0.0.1", 1)}, options);
    for (int i = 0; i < 3; ++i) {
      observers.push_back(std::make_unique<Observer>());
      calls.push_back(channel->start("/f.F/F", {}, "x", *observers.back()));
    }
    if (dialer.far && data[1] % 2 == 0) {
      write_all(*dialer.far, std::string_view("\0\0\0\4\0\0\0\0\0", 9));
    }
  });
  turns(max_read == 0 ? 4 : 14);
  reactor.post([&] {
    if (dialer.far) {
      write_all(*dialer.far, bytes);
    }
  });
  turns(4);
  // Every read is its own turn when reads are cut; run until nothing moves any more.
  turns(max_read == 0 ? 4 : static_cast<int>(size / max_read) + 8);
  reactor.post([&] {
    calls.pop_back();
    if (data[1] % 4 < 2) {
      dialer.far.reset();
    }
  });
  turns(6);
  if (!dialer.far && (!observers[0]->ended || !observers[1]->ended)) {
    std::abort();
  }
  reactor.post([&] {
    calls.clear();
    if (channel->calls() != 0) {
      std::abort();
    }
    channel.reset();
    dialer.far.reset();
  });
  turns(3);
  return 0;
}
