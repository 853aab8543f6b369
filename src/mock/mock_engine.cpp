#include "mock/mock_engine.hpp"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <random>
#include <utility>

#include "base/json.hpp"
#include "base/log.hpp"
#include "mock/debug_api.hpp"
#include "mock/engine_service.hpp"
#include "mock/engine_state.hpp"
#include "mock/kv_transfer.hpp"
#include "mock/sglang_service.hpp"
#include "mock/vllm_http_service.hpp"
#include "mock/vllm_service.hpp"
#include "net/event.hpp"
#include "net/http_server.hpp"

namespace fairlead::mock {
namespace {

// One answer with the logprobs of a whole vocabulary, or a whole cache on the debug port, is large.
constexpr std::size_t kMaxUnsent = 1024 * 1024 * 1024;
constexpr net::Duration kForever = std::chrono::hours(24 * 365);

net::http::ServerLimits engine_limits(const MockOptions& options) {
  net::http::ServerLimits limits;
  // 32 MiB are the bound of vLLM's interfaces, 64 of SGLang's. Over gRPC a larger message is
  // refused with a status, which needs the whole body.
  constexpr std::size_t kMebibyte = 1024 * 1024;
  switch (options.interface) {
    case Interface::Grpc: limits.body_bytes = 64 * kMebibyte; break;
    case Interface::Http: limits.body_bytes = 32 * kMebibyte; break;
    case Interface::Sglang: limits.body_bytes = 128 * kMebibyte; break;
  }
  limits.max_streams = options.max_streams;
  limits.max_unsent_bytes = kMaxUnsent;
  limits.idle_timeout = kForever;
  limits.slow_reader_timeout = kForever;
  return limits;
}

net::http::ServerLimits debug_limits() {
  net::http::ServerLimits limits;
  limits.max_unsent_bytes = kMaxUnsent;
  return limits;
}

std::unique_ptr<EngineService> make_service(EngineState& state) {
  if (state.options.interface == Interface::Http) {
    return std::make_unique<VllmHttpService>(state);
  }
  if (state.options.interface == Interface::Sglang) {
    return std::make_unique<SglangService>(state);
  }
  return std::make_unique<VllmService>(state);
}

std::string strip_scheme(std::string_view endpoint) {
  constexpr std::string_view kScheme = "tcp://";
  return std::string(endpoint.starts_with(kScheme) ? endpoint.substr(kScheme.size()) : endpoint);
}

// The endpoint of a rank: its port is shifted, unless the system chooses it.
Result<std::string> rank_endpoint(const std::string& host_port, std::uint32_t rank) {
  if (host_port.empty()) {
    return std::string();
  }
  auto place = split_host_port(host_port);
  if (!place) {
    return std::unexpected(place.error());
  }
  const std::uint32_t port = place->second == 0 ? 0 : place->second + rank;
  return fmt::format("tcp://{}:{}", place->first, port);
}

// `HOST:0` with a random port instead, among those that systems do not give to connections.
std::string with_random_port(const std::string& host_port, std::random_device& random) {
  if (!host_port.ends_with(":0")) {
    return host_port;
  }
  std::uniform_int_distribution<int> ports(10'000, 32'000);
  return fmt::format("{}{}", std::string_view(host_port).substr(0, host_port.size() - 1),
                     ports(random));
}

TimingModel timing_of(const MockOptions& options) {
  return options.token_interval_ms > 0
             ? TimingModel(0, 0)
             : TimingModel(options.speedup_ratio, options.decode_speedup_ratio);
}

}  // namespace

std::string MockAddresses::to_json() const {
  std::string out;
  json::Writer json(out);
  json.begin_object()
      .key(interface == Interface::Http ? "http" : "grpc")
      .string(engine.to_string());
  if (debug) {
    json.key("debug").string(debug->to_string());
  }
  if (!kv_events.empty()) {
    json.key("kv_events").string(kv_events);
  }
  if (!kv_replay.empty()) {
    json.key("kv_replay").string(kv_replay);
  }
  if (bootstrap) {
    json.key("bootstrap").string(bootstrap->to_string());
  }
  if (kv_transfer) {
    json.key("kv_transfer").string(kv_transfer->to_string());
  }
  json.end_object();
  return out;
}

class MockEngine::Impl {
 public:
  Impl(net::Reactor& reactor, MockOptions options, ReplySource replies)
      : reactor_(reactor),
        state_(std::move(options), std::move(replies)),
        service_(make_service(state_)) {
    state_.fetch_kv = [this](const RemoteKv& remote) { return fetcher_.start(remote); };
    state_.die = [this](std::string cause) { die(std::move(cause)); };
  }

  net::Task<Result<MockAddresses>> start() {
    const auto startup = std::chrono::duration<double>(state_.options.startup_time_s);
    co_await net::Sleep(std::chrono::duration_cast<net::Duration>(startup));
    co_return bind();
  }

  void stop() {
    listener_.reset();
    debug_listener_.reset();
    peer_listener_.reset();
    server_.reset();
    debug_server_.reset();
    peer_server_.reset();
    fetcher_.cancel();
    transfers_.clear();
    state_.cores.clear();
  }

  MockCounts counts() const { return state_.counts(); }
  void set_on_death(std::function<void(std::string)> callback) { on_death_ = std::move(callback); }

  Result<> set_faults(std::vector<Fault> faults) {
    const bool refused = state_.fault(FaultKind::Refuse) != nullptr;
    state_.options.faults = std::move(faults);
    const Fault* drop = state_.fault(FaultKind::DropEvent);
    for (const auto& core : state_.cores) {
      if (core->publisher()) {
        core->publisher()->set_drop_probability(drop ? drop->probability : 0);
      }
    }
    service_->health_changed();
    const bool refuse = state_.fault(FaultKind::Refuse) != nullptr;
    if (refuse && !refused) {
      listener_.reset();
      server_ = make_server();
    } else if (!refuse && refused) {
      return listen_engine();
    }
    return {};
  }

  bool reset_prefix_cache() {
    bool all = true;
    for (const auto& core : state_.cores) {
      all = core->reset_prefix_cache() && all;
    }
    return all;
  }

 private:
  Result<MockAddresses> bind() {
    MockOptions& options = state_.options;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    state_.incarnation = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    state_.started_at = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    state_.instance_id =
        !options.instance_id.empty()
            ? options.instance_id
            : fmt::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    if (auto made = make_cores(); !made) {
      return std::unexpected(made.error());
    }
    server_ = make_server();
    auto address = net::Address::parse(options.listen_host, options.listen_port);
    if (!address) {
      return std::unexpected(address.error());
    }
    address_ = *address;
    if (auto listening = listen_engine(); !listening) {
      return std::unexpected(listening.error());
    }
    if (state_.fault(FaultKind::Refuse)) {
      listener_.reset();
    }
    if (auto listening = listen_peers(); !listening) {
      return std::unexpected(listening.error());
    }
    MockAddresses addresses;
    if (peer_listener_) {
      (options.interface == Interface::Sglang ? addresses.bootstrap : addresses.kv_transfer) =
          peer_listener_->address();
    }
    addresses.engine = address_;
    addresses.interface = options.interface;
    if (options.debug_host) {
      if (auto listening = listen_debug(); !listening) {
        return std::unexpected(listening.error());
      }
      addresses.debug = debug_listener_->address();
    }
    if (const KvPublisher* publisher = state_.cores.front()->publisher()) {
      addresses.kv_events = strip_scheme(publisher->endpoint());
      addresses.kv_replay = strip_scheme(publisher->replay_endpoint());
    }
    return addresses;
  }

  // A core for each rank. The ranks of SGLang publish at consecutive ports, also where none is
  // named: then they are sought where connections do not take them.
  Result<> make_cores() {
    constexpr int kTries = 50;
    const MockOptions& options = state_.options;
    std::random_device random;
    for (int i = 0;; ++i) {
      std::string events = options.kv_events;
      std::string replay = options.kv_replay;
      if (seeks_ports()) {
        events = with_random_port(events, random);
        replay = with_random_port(replay, random);
      }
      Result<> made;
      for (std::uint32_t rank = 0; rank < options.data_parallel_size && made; ++rank) {
        made = make_core(rank, events, replay);
      }
      if (made || i + 1 == kTries || !seeks_ports()) {
        return made;
      }
      state_.cores.clear();
    }
  }

  bool seeks_ports() const {
    const MockOptions& options = state_.options;
    return options.interface == Interface::Sglang && options.data_parallel_size > 1 &&
           (options.kv_events.ends_with(":0") || options.kv_replay.ends_with(":0"));
  }

  Result<std::unique_ptr<KvPublisher>> make_publisher(std::uint32_t rank,
                                                      const std::string& events_place,
                                                      const std::string& replay_place) {
    const MockOptions& options = state_.options;
    const auto events = rank_endpoint(events_place, rank);
    const auto replay = rank_endpoint(replay_place, rank);
    if (!events || !replay) {
      return std::unexpected(events ? replay.error() : events.error());
    }
    const bool sglang = options.interface == Interface::Sglang;
    auto publisher = KvPublisher::start({
        .endpoint = *events,
        .replay_endpoint = *replay,
        .topic = options.kv_events_topic,
        .buffer_steps = options.kv_events_buffer_steps,
        .block_size = static_cast<std::uint32_t>(options.block_size),
        .rank = rank,
        .layout = options.event_layout(),
        .flavor = sglang ? KvEventFlavor::Sglang : KvEventFlavor::Vllm,
        .replay_topic = options.has(Capability::ReplayTopic),
        .seed = options.seed + rank,
    });
    if (!publisher) {
      return std::unexpected(publisher.error());
    }
    if (const Fault* drop = state_.fault(FaultKind::DropEvent)) {
      (*publisher)->set_drop_probability(drop->probability);
    }
    if (sglang) {
      (*publisher)->publish({AllBlocksCleared{}});
    }
    return publisher;
  }

  Result<> make_core(std::uint32_t rank, const std::string& events, const std::string& replay) {
    const MockOptions& options = state_.options;
    const bool sglang = options.interface == Interface::Sglang;
    // A decode engine of SGLang has no prefix cache, and an engine without one nothing to tell.
    const bool caching = options.enable_prefix_caching && !(sglang && options.role == Role::Decode);
    std::unique_ptr<KvPublisher> publisher;
    if (!events.empty() && (caching || !sglang)) {
      auto started = make_publisher(rank, events, replay);
      if (!started) {
        return std::unexpected(started.error());
      }
      publisher = std::move(*started);
    }
    auto pool = std::make_unique<BlockPool>(options.num_gpu_blocks, options.block_size, caching,
                                            sglang ? BlockHashing::Sha256 : BlockHashing::Xxh3);
    SchedulerOptions scheduler = options.scheduler;
    scheduler.output_stored_at_end = sglang;
    state_.cores.push_back(std::make_unique<EngineCore>(reactor_, scheduler, timing_of(options),
                                                        std::move(pool), std::move(publisher)));
    return {};
  }

  // Not on the stack of the request that it dies of.
  void die(std::string cause) {
    log::error("the engine dies: {}", cause);
    reactor_.post([this, alive = std::weak_ptr<bool>(alive_), cause = std::move(cause)] {
      if (alive.expired()) {
        return;
      }
      alive_.reset();
      if (on_death_) {
        on_death_(cause);
      }
      listener_.reset();
      peer_listener_.reset();
      server_.reset();
      peer_server_.reset();
    });
  }

  std::unique_ptr<net::http::Server> make_server() {
    return std::make_unique<net::http::Server>(service_->handler(), engine_limits(state_.options),
                                               [this](int status, std::string_view message) {
                                                 return service_->error_body(status, message);
                                               });
  }

  Result<> listen_engine() {
    auto listener =
        net::Listener::open(reactor_, address_, [this](int fd) { server_->accept(fd); });
    if (!listener) {
      return std::unexpected(listener.error());
    }
    listener_ = std::move(*listener);
    address_ = listener_->address();
    state_.listen_port = address_.port();
    return {};
  }

  // The place where the other half of a prefill engine's requests finds it.
  Result<> listen_peers() {
    const MockOptions& options = state_.options;
    const bool sglang = options.interface == Interface::Sglang;
    const std::string& place = sglang ? options.bootstrap_listen : options.kv_transfer_listen;
    if (place.empty()) {
      return {};
    }
    const auto host_port = split_host_port(place);
    const auto address = host_port ? net::Address::parse(host_port->first, host_port->second)
                                   : Result<net::Address>(std::unexpected(host_port.error()));
    if (!address) {
      return std::unexpected(address.error());
    }
    peer_server_ = std::make_unique<net::http::Server>(
        sglang ? static_cast<SglangService&>(*service_).rooms().handler() : transfers_.handler(),
        net::http::ServerLimits(),
        [](int, std::string_view message) { return debug_error(message); });
    auto listener =
        net::Listener::open(reactor_, *address, [this](int fd) { peer_server_->accept(fd); });
    if (!listener) {
      return std::unexpected(listener.error());
    }
    peer_listener_ = std::move(*listener);
    if (sglang) {
      state_.bootstrap_port = peer_listener_->address().port();
      return {};
    }
    state_.transfer_host = host_port->first;
    state_.transfer_port = peer_listener_->address().port();
    state_.keep_kv = [this](EngineCore& core, const std::string& id,
                            const std::vector<BlockId>& blocks) {
      transfers_.keep(core, id, blocks);
    };
    return {};
  }

  Result<> listen_debug() {
    const auto address = net::Address::parse(*state_.options.debug_host, state_.options.debug_port);
    if (!address) {
      return std::unexpected(address.error());
    }
    debug_server_ = std::make_unique<net::http::Server>(
        make_debug_handler(
            state_, {[this](std::vector<Fault> faults) { return set_faults(std::move(faults)); },
                     [this] { return reset_prefix_cache(); }}),
        debug_limits(), [](int, std::string_view message) { return debug_error(message); });
    auto listener =
        net::Listener::open(reactor_, *address, [this](int fd) { debug_server_->accept(fd); });
    if (!listener) {
      return std::unexpected(listener.error());
    }
    debug_listener_ = std::move(*listener);
    return {};
  }

  net::Reactor& reactor_;
  EngineState state_;
  std::unique_ptr<EngineService> service_;
  KvTransferTable transfers_{state_};
  KvFetcher fetcher_{state_};
  net::Address address_;
  std::unique_ptr<net::http::Server> server_;
  std::unique_ptr<net::http::Server> debug_server_;
  std::unique_ptr<net::http::Server> peer_server_;
  std::unique_ptr<net::Listener> peer_listener_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Listener> debug_listener_;
  std::function<void(std::string)> on_death_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

MockEngine::MockEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MockEngine::~MockEngine() { impl_->stop(); }

Result<std::unique_ptr<MockEngine>> MockEngine::create(net::Reactor& reactor, MockOptions options) {
  if (auto resolved = resolve(options); !resolved) {
    return std::unexpected(resolved.error());
  }
  auto replies = ReplySource::parse(options.reply, options.seed, options.vocab_size);
  if (!replies) {
    return fail(replies.error().code, fmt::format("--reply: {}", replies.error().message),
                "--reply");
  }
  return std::unique_ptr<MockEngine>(
      new MockEngine(std::make_unique<Impl>(reactor, std::move(options), std::move(*replies))));
}

net::Task<Result<MockAddresses>> MockEngine::start() { return impl_->start(); }
void MockEngine::stop() { impl_->stop(); }
MockCounts MockEngine::counts() const { return impl_->counts(); }
Result<> MockEngine::set_faults(std::vector<Fault> faults) {
  return impl_->set_faults(std::move(faults));
}
void MockEngine::set_on_death(std::function<void(std::string)> callback) {
  impl_->set_on_death(std::move(callback));
}
bool MockEngine::reset_prefix_cache() { return impl_->reset_prefix_cache(); }

}  // namespace fairlead::mock
