#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/client.hpp"
#include "engine/testing.hpp"
#include "net/testing.hpp"

namespace fairlead::engine::testing {

/// A client of a scripted server, and one generation of it.
template <class Server>
class ClientTest : public net::testing::ReactorTest {
 public:
  ~ClientTest() override {
    in_turn([this] {
      stream.reset();
      client.reset();
    });
  }

 protected:
  /// Makes the client; the address is filled in.
  void connect_with(ClientOptions options) {
    options.authority = server.address().to_string();
    options.addresses = {server.address()};
    in_turn([&] { client = make_client(dialer, std::move(options)); });
  }
  Result<EngineInfo> probe() {
    std::optional<Result<EngineInfo>> info;
    net::testing::run_task(reactor, probe_into(info));
    return info ? std::move(*info) : fail(ErrorCode::Internal, "the probe did not end");
  }
  Result<std::vector<KvUsage>> kv_usage() {
    std::optional<Result<std::vector<KvUsage>>> usage;
    net::testing::run_task(reactor, usage_into(usage));
    return usage ? std::move(*usage) : fail(ErrorCode::Internal, "the question did not end");
  }
  Result<> check_health() {
    std::optional<Result<>> healthy;
    net::testing::run_task(reactor, check_into(healthy));
    return healthy ? std::move(*healthy) : fail(ErrorCode::Internal, "the check did not end");
  }
  void open(const GenerateRequest& request = plain_request()) {
    in_turn([&] {
      auto opened = client->open(request, sink);
      ASSERT_TRUE(opened) << opened.error().message;
      stream = std::move(*opened);
    });
  }
  void close() {
    in_turn([this] { stream.reset(); });
  }

  Server server{reactor};
  net::TcpDialer dialer;
  std::unique_ptr<EngineClient> client;
  RecordingSink sink;
  std::unique_ptr<EngineStream> stream;

 private:
  net::TimePoint soon() const { return reactor.now() + std::chrono::seconds(8); }
  net::Task<> probe_into(std::optional<Result<EngineInfo>>& out) {
    out = co_await client->probe(soon());
  }
  net::Task<> usage_into(std::optional<Result<std::vector<KvUsage>>>& out) {
    out = co_await client->kv_usage(soon());
  }
  net::Task<> check_into(std::optional<Result<>>& out) {
    out = co_await client->check_health(soon());
  }
};

}  // namespace fairlead::engine::testing
