// links: fl_net
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "net/http_server.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"

// A server must answer the same bytes with the same bytes however they were cut, and must be left
// with nothing when the client is gone. The first byte of an input chooses the cuts.

namespace {

namespace net = fairlead::net;
namespace http = fairlead::net::http;

net::Reactor& reactor() {
  static net::Reactor instance;
  return instance;
}

net::Task<> handle(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  if (request.body.capacity() < request.body.size() + http::kBodyPadding) {
    std::abort();
  }
  std::string text = request.method + " " + request.path + "?" + request.query + "\n";
  for (const http::Header& header : request.headers) {
    text += header.name + ":" + header.value + "\n";
  }
  text += request.body;
  if (request.body.size() % 2 == 1) {
    exchange.start(200, {});
    exchange.out() += text;
    exchange.commit();
    exchange.finish();
  } else {
    exchange.respond(200, {}, text);
  }
  co_return;
}

class Peer final : public net::StreamHandler {
 public:
  explicit Peer(std::unique_ptr<net::Stream> stream) : stream_(std::move(stream)) {
    stream_->set_handler(this);
  }
  void on_readable() override {
    std::array<char, 4096> buffer;
    while (!ended) {
      const net::IoResult result = stream_->read(buffer);
      if (result.status == net::IoResult::Status::WouldBlock) {
        return;
      }
      ended = result.status != net::IoResult::Status::Ok;
      text.append(buffer.data(), result.bytes);
    }
  }
  void on_writable() override {}
  void send(std::string_view bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    stream_->write({&piece, 1});
  }
  void shutdown() { stream_->shutdown_write(); }

  std::string text;
  bool ended = false;

 private:
  std::unique_ptr<net::Stream> stream_;
};

std::string without_dates(std::string text) {
  for (std::size_t at = 0; (at = text.find("\r\ndate: ", at)) != std::string::npos;) {
    text.erase(at, text.find("\r\n", at + 2) - at);
  }
  return text;
}

void turns(int count) {
  for (int i = 0; i < count; ++i) {
    reactor().run_turn(net::Duration(0));
  }
}

std::string talk(std::string_view bytes, std::size_t piece, std::size_t max_read) {
  http::ServerLimits limits;
  limits.allow_half_close = true;
  limits.header_bytes = 512;
  limits.header_count = 8;
  limits.body_bytes = 300;
  std::string answer;
  std::unique_ptr<http::Server> server;
  std::unique_ptr<Peer> peer;
  reactor().post([&] {
    server = std::make_unique<http::Server>(
        handle, limits, [](int, std::string_view message) { return std::string(message); });
    auto [ours, theirs] = net::make_pipe(max_read, 1024 * 1024);
    peer = std::make_unique<Peer>(std::move(ours));
    server->accept(std::move(theirs));
  });
  turns(1);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reactor().post([&] { peer->send(bytes.substr(at, piece)); });
    turns(1);
  }
  reactor().post([&] { peer->shutdown(); });
  for (int i = 0; i < 10'000 && !peer->ended; ++i) {
    turns(1);
  }
  if (!peer->ended) {
    std::abort();
  }
  answer = without_dates(std::move(peer->text));
  reactor().post([&] { peer.reset(); });
  turns(3);
  if (server->connections() != 0 || server->in_flight() != 0 ||
      server->counters().connections_open != 0) {
    std::abort();
  }
  reactor().post([&] { server.reset(); });
  turns(2);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 4096) {
    return 0;
  }
  const std::size_t cuts = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (bytes.starts_with("PRI * HTTP/2.0")) {
    return 0;  // another target's
  }
  const std::string whole = talk(bytes, size, 0);
  const std::string cut = talk(bytes, 1 + cuts / 8, cuts % 8);
  if (whole != cut) {
    std::abort();
  }
  return 0;
}
