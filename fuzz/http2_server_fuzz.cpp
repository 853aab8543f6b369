// links: fl_net
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "net/event.hpp"
#include "net/grpc.hpp"
#include "net/http_server.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"

// A client that sends whatever it likes after the preface: every handler that began is gone when
// the client is. The first byte chooses the cuts and whether there is a preface.

namespace {

using namespace fairlead::net;  // NOLINT(google-build-using-namespace)

int running = 0;

struct Running {
  Running() { ++running; }
  ~Running() { --running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

Task<> handle(http::Exchange& exchange) {
  const Running guard;
  const http::Request& request = exchange.request();
  if (request.body.capacity() < request.body.size() + http::kBodyPadding) {
    std::abort();
  }
  if (request.method == "GET") {
    exchange.respond(200, {{"content-type", "text/plain"}}, request.path);
    co_return;
  }
  exchange.start(200, {});
  exchange.out() += request.body;
  exchange.commit();
  if (request.path == "/wait") {
    Event never;
    co_await never.wait();
  }
  exchange.finish({{"x-trailer", "1"}});
}

Task<> echo(grpc::ServerCall& call) {
  const Running guard;
  call.write(call.request());
  co_return;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 64 * 1024) {
    return 0;
  }
  using std::chrono::seconds;
  static Reactor reactor;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t max_read = data[0] % 16 == 0 ? 0 : data[0] % 16 * data[0] % 251 + 1;
  grpc::Service service;
  service.add("/f.F/Echo", echo);
  const http::Handler of_grpc = service.handler();
  std::unique_ptr<http::Server> server;
  std::unique_ptr<Stream> near;
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      reactor.run_turn(seconds(0));
    }
  };
  reactor.post([&] {
    http::ServerLimits limits;
    limits.header_bytes = 4096;
    limits.header_count = 32;
    limits.body_bytes = 8192;
    limits.max_streams = 8;
    server = std::make_unique<http::Server>(
        [&](http::Exchange& exchange) {
          return exchange.request().headers.find("content-type") == "application/grpc"
                     ? of_grpc(exchange)
                     : handle(exchange);
        },
        limits, [](int, std::string_view text) { return std::string(text); });
    auto [a, b] = make_pipe(max_read, 1024 * 1024);
    near = std::move(a);
    server->accept(std::move(b));
    std::string all = data[0] >= 240 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    all += bytes;
    const iovec piece{all.data(), all.size()};
    near->write({&piece, 1});
  });
  turns(8);
  turns(max_read == 0 ? 4 : static_cast<int>(size / max_read) + 8);
  reactor.post([&] { near.reset(); });
  turns(4);
  if (running != 0 || server->in_flight() != 0) {
    std::abort();
  }
  reactor.post([&] { server.reset(); });
  turns(3);
  return 0;
}
