#include "fleet/probe_command.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "fleet/worker.hpp"
#include "net/socket.hpp"
#include "net/task_group.hpp"

namespace fairlead::fleet {
namespace {

void write_strings(json::Writer& out, const std::vector<std::string>& values) {
  out.begin_array();
  for (const std::string& value : values) {
    out.string(value);
  }
  out.end_array();
}

void write_source(json::Writer& out, const engine::KvEventSource& source) {
  out.begin_object();
  out.key("data_parallel_rank").unsigned_integer(source.data_parallel_rank);
  out.key("endpoint").string(source.endpoint);
  out.key("replay_endpoint").string(source.replay_endpoint);
  out.key("topic").string(source.topic);
  out.key("buffer_steps").unsigned_integer(source.buffer_steps);
  out.end_object();
}

/// One probe at one address after the other, in the current reactor.
class Probe {
 public:
  Probe(const Endpoint& endpoint, engine::Backend backend, net::Duration timeout)
      : endpoint_(endpoint), backend_(backend), timeout_(timeout) {}

  Result<engine::EngineInfo> run() {
    // Blocking here delays nobody: nothing else runs.
    auto addresses = net::resolve(endpoint_.host, endpoint_.port);
    if (!addresses) {
      return std::unexpected(std::move(addresses.error()));
    }
    reactor_.post([&] {
      tasks_ = std::make_unique<net::TaskGroup>();
      tasks_->spawn(ask(std::move(*addresses)));
    });
    reactor_.run();
    // The client belongs to a turn of its reactor, which has to end it.
    reactor_.post([&] {
      tasks_.reset();
      client_.reset();
    });
    reactor_.run_turn(net::Duration(0));
    return std::move(*result_);
  }

 private:
  net::Task<> ask(std::vector<net::Address> addresses) {
    engine::ClientOptions options;
    options.backend = backend_;
    options.authority = endpoint_.authority;
    options.addresses = std::move(addresses);
    client_ = engine::make_client(dialer_, std::move(options));
    result_ = co_await client_->probe(reactor_.now() + timeout_);
    reactor_.stop();
  }

  const Endpoint& endpoint_;
  engine::Backend backend_;
  net::Duration timeout_;
  net::Reactor reactor_{"probe"};
  net::TcpDialer dialer_;
  std::unique_ptr<engine::EngineClient> client_;
  std::unique_ptr<net::TaskGroup> tasks_;
  std::optional<Result<engine::EngineInfo>> result_;
};

}  // namespace

std::string probe_json(const Endpoint& endpoint, engine::EngineInfo info) {
  replace_wildcard_hosts(info, endpoint.authority_host());
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("worker_id").unsigned_integer(worker_id(endpoint.url));
  out.key("endpoint").string(endpoint.url);
  out.key("dialect").string(info.dialect);
  out.key("engine_version").string(info.engine_version);
  out.key("proto_version").string(info.proto_version);
  out.key("instance_id").string(info.instance_id);
  out.key("model_id").string(info.model_id);
  out.key("served_model_name").string(info.served_model_name);
  write_strings(out.key("aliases"), info.aliases);
  out.key("max_model_len").unsigned_integer(info.max_model_len);
  out.key("kv_block_size").unsigned_integer(info.kv_block_size);
  out.key("total_kv_blocks").unsigned_integer(info.total_kv_blocks);
  out.key("max_running_requests").unsigned_integer(info.max_running_requests);
  out.key("max_batched_tokens").unsigned_integer(info.max_batched_tokens);
  out.key("data_parallel_start").unsigned_integer(info.data_parallel_start);
  out.key("data_parallel_size").unsigned_integer(info.data_parallel_size);
  out.key("capabilities").begin_array();
  for (const engine::CapabilityTraits& row : engine::capability_table()) {
    if (info.capabilities.has(row.capability)) {
      out.string(row.name);
    }
  }
  out.end_array();
  out.key("lora_adapters").begin_array();
  for (const std::string& adapter : info.lora_adapters) {
    out.string(adapter);
  }
  out.end_array();
  out.key("tool_call_parser").string(info.tool_call_parser);
  out.key("reasoning_parser").string(info.reasoning_parser);
  out.key("kv_event_sources").begin_array();
  for (const engine::KvEventSource& source : info.kv_event_sources) {
    write_source(out, source);
  }
  out.end_array();
  write_strings(out.key("warnings"), info.warnings);
  out.end_object();
  return text;
}

Result<std::string> probe_engine(std::string_view url, engine::Backend backend,
                                 net::Duration timeout) {
  Result<Endpoint> endpoint = parse_endpoint(url);
  if (!endpoint) {
    return std::unexpected(std::move(endpoint.error()));
  }
  Result<engine::EngineInfo> info = Probe(*endpoint, backend, timeout).run();
  if (!info) {
    return fail(info.error().code,
                fmt::format("{} cannot be probed: {}", endpoint->url, info.error().message));
  }
  return probe_json(*endpoint, std::move(*info));
}

}  // namespace fairlead::fleet
