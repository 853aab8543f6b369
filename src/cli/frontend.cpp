#include "cli/frontend.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "cli/process.hpp"
#include "cli/sampling_defaults.hpp"
#include "fleet/discovery/file_source.hpp"
#include "hub/hub.hpp"
#include "tokenizer/piece_cache.hpp"

namespace fairlead::cli {
namespace {

// Answers that were ended by the drain's deadline have this long to leave.
constexpr net::Duration kLastWords = std::chrono::milliseconds(200);
// One line for so long about connections that were refused for want of descriptors.
constexpr net::Duration kFullWarningPause = std::chrono::seconds(5);
// Descriptors kept from clients: a quarter of all, and no more than this.
constexpr std::uint64_t kReservedDescriptors = 256;
// Begins a canary where the model's beginning of sequence is not known.
constexpr engine::TokenId kAnyToken = 1;
// Sessions that are bound at once; beyond that the longest idle one is forgotten.
constexpr std::size_t kMostSessions = 1'000'000;
// How often it is looked what became of the engines' KV events.
constexpr net::Duration kKvTick = std::chrono::milliseconds(100);
// How long the first workers may be held back until their engines have confirmed peers' views.
constexpr net::Duration kSettling = std::chrono::seconds(5);

int client_fd_limit() {
  constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
  const std::uint64_t limit = raise_fd_limit(0);
  return static_cast<int>(limit == 0
                              ? kMost  // unknown
                              : std::min(limit - std::min(limit / 4, kReservedDescriptors), kMost));
}

/// The files' sampling values, under those of the cards, under those of the flag.
Result<chat::ModelAssets> load(const ServeOptions& options, const AssetSource& source,
                               const std::stop_token& stop) {
  const auto folder = hub::resolve_model(source.path, {.download = source.download, .stop = stop});
  if (!folder) {
    return std::unexpected(folder.error());
  }
  Result<chat::ModelAssets> assets = chat::load_model_assets(
      {.path = folder->string(), .generation_config = options.generation_config});
  if (!assets) {
    return assets;
  }
  if (!source.sampling.empty()) {
    const Result<json::Value> cards = json::parse(source.sampling);
    const Result<> set =
        cards ? overlay_sampling(*cards, assets->defaults) : std::unexpected(cards.error());
    if (!set) {
      return fail(set.error().code,
                  "`default_sampling_params` of its cards: " + set.error().message);
    }
  }
  if (const Result<> set = overlay_sampling(options.default_sampling, assets->defaults); !set) {
    return std::unexpected(set.error());
  }
  return assets;
}

}  // namespace

Frontend::Frontend(net::Reactor& control, ServeOptions options)
    : control_(control),
      options_(std::move(options)),
      registry_(options_.metrics_prefix, options_.threads,
                options_.router.router.mode == routing::RouterMode::Kv),
      router_(options_.router.router),
      kv_timer_([this] { tick_kv_views(); }),
      client_fd_limit_(client_fd_limit()),
      drain_deadline_([this] { end_drain(); }),
      last_words_([this] { finish_drain(); }) {}

Frontend::~Frontend() {
  *alive_ = false;
  listener_.reset();
  for (const auto& lane : lanes_) {
    lane->stop();
  }
  cards_.reset();
  peers_.reset();
  fleet_.reset();
  loader_.reset();
  kv_timer_.cancel();
  for (const auto& lane : lanes_) {
    lane->join();
  }
}

Result<std::unique_ptr<Frontend>> Frontend::start(
    net::Reactor& control, ServeOptions options,
    const std::shared_ptr<const chat::ModelAssets>& assets) {
  std::unique_ptr<Frontend> frontend(new Frontend(control, std::move(options)));
  const ServeOptions& checked = frontend->options_;
  std::shared_ptr<const chat::ModelAssets> common;
  if (!assets && !checked.model_paths.common.empty()) {
    Result<chat::ModelAssets> loaded =
        load(checked, {.path = checked.model_paths.common, .sampling = {}}, {});
    if (!loaded) {
      const std::string& origin = loaded.error().param == "generation_config"
                                      ? checked.generation_config_origin
                                      : checked.model_path_origin;
      return fail(loaded.error().code, fmt::format("{}: {}", origin, loaded.error().message));
    }
    common = std::make_shared<const chat::ModelAssets>(std::move(*loaded));
  }
  if (Result<> listening = frontend->listen(); !listening) {
    return std::unexpected(listening.error());
  }
  frontend->start_lanes();
  frontend->start_kv_views();
  if (assets) {
    frontend->set_assets({}, assets);
  } else {
    frontend->start_loader(std::move(common));
  }
  frontend->start_fleet();
  return frontend;
}

Result<> Frontend::listen() {
  const Result<std::vector<net::Address>> addresses =
      net::resolve(options_.http_host, options_.http_port);
  if (!addresses) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("{}: {}", options_.http_host_origin, addresses.error().message));
  }
  Result<std::unique_ptr<net::Listener>> listener =
      net::Listener::open(control_, addresses->front(), [this](int fd) { on_accept(fd); });
  if (!listener) {
    return fail(ErrorCode::Internal, listener.error().message);
  }
  listener_ = std::move(*listener);
  return {};
}

void Frontend::start_lanes() {
  if (options_.router.session_ttl && router_.mode() == routing::RouterMode::Kv) {
    sessions_ = std::make_unique<routing::SessionAffinity>(
        std::chrono::duration_cast<std::chrono::seconds>(*options_.router.session_ttl),
        kMostSessions);
  }
  tokenizer::PieceCache::of_process().set_limit(options_.tokenizer_cache_bytes);
  pool_ = std::make_unique<serving::CpuPool>(options_.cpu_pool);
  lane_context_ = std::make_unique<LaneContext>(
      LaneContext{options_, router_, *pool_, registry_,
                  [this, post = poster()](std::uint64_t worker, std::uint64_t incarnation,
                                          fleet::Outcome outcome) {
                    post([this, worker, incarnation, outcome] {
                      if (fleet_) {
                        fleet_->report(worker, incarnation, outcome);
                      }
                    });
                  },
                  sessions_.get()});
  lanes_stopped_ = std::make_unique<std::latch>(static_cast<std::ptrdiff_t>(options_.threads));
  for (std::size_t i = 0; i < options_.threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>(i, *lane_context_, *lanes_stopped_));
  }
  registry_.add_collector([this](observe::TextWriter& writer) { collect(writer); });
}

void Frontend::start_kv_views() {
  if (router_.mode() != routing::RouterMode::Kv) {
    return;
  }
  kv_views_ = std::make_unique<routing::KvViews>(
      options_.router.views, [this](const std::shared_ptr<const routing::KvViewMap>& views) {
        for (const auto& lane : lanes_) {
          lane->set_kv_views(views);
        }
      });
  poster()([this] { kv_timer_.arm(kKvTick); });
}

void Frontend::tick_kv_views() {
  const net::TimePoint now = control_.now();
  kv_views_->tick(now);
  if (unsettled_ && (now >= settle_by_ || kv_views_->settled())) {
    on_snapshot(fleet_->snapshot());
  }
  kv_timer_.arm(kKvTick);
}

void Frontend::ask_peers() {
  if (!kv_views_ || !options_.router.views.events || options_.router.peers.peers.empty()) {
    return;
  }
  peers_ = std::make_unique<serving::PeerViews>(*dialer_, *resolver_, options_.router.peers);
  peers_->start([this, post = poster()](std::vector<kv::DumpedTarget> views) {
    post([this, views = std::move(views)]() mutable {
      peers_.reset();
      kv_views_->offer(std::move(views), control_.now());
      on_snapshot(fleet_->snapshot());
    });
  });
}

void Frontend::start_fleet() {
  dialer_ = std::make_unique<net::TcpDialer>(options_.limits.socket);
  resolver_ = std::make_unique<fleet::ThreadResolver>(control_);
  options_.fleet.canary.bos = [this](std::string_view model) { return bos_of(model); };
  if (router_.mode() == routing::RouterMode::Kv) {
    options_.fleet.load.wanted = [this] { return router_.wants_used_blocks(); };
    options_.fleet.load.report = [this](fleet::WorkerId worker, std::uint32_t rank,
                                        std::optional<std::uint64_t> blocks) {
      router_.report_used_blocks(worker, rank, blocks);
    };
  }
  fleet_ = std::make_unique<fleet::LiveFleet>(
      options_.fleet,
      [this](engine::ClientOptions client) {
        return engine::make_client(*dialer_, std::move(client));
      },
      *resolver_, [this](const std::shared_ptr<const fleet::Fleet>& fleet) { on_snapshot(fleet); });
  poster()([this] {
    ask_peers();
    fleet_->set_cards("flags", fleet::flag_cards(options_.engines, options_.prefill_engines));
    fleet_->start();
    if (options_.card_folder) {
      cards_ = std::make_unique<fleet::FileCardSource>(
          fleet::FileSourceOptions{.folder = *options_.card_folder});
      cards_->start([this](std::vector<fleet::Card> cards) {
        fleet_->set_cards("folder", std::move(cards));
      });
    }
  });
}

void Frontend::start_loader(std::shared_ptr<const chat::ModelAssets> common) {
  loader_ = std::make_unique<AssetLoader>(
      control_, options_.model_paths,
      [this](const AssetSource& source, const std::stop_token& stop) {
        return load(options_, source, stop);
      },
      [this](const std::string& model, const std::shared_ptr<const chat::ModelAssets>& assets) {
        set_assets(model, assets);
      });
  loader_->set_default(std::move(common));
}

std::function<void(std::move_only_function<void()>)> Frontend::poster() {
  return [&control = control_, alive = alive_](std::move_only_function<void()> job) {
    control.post([alive, job = std::move(job)]() mutable {
      if (*alive) {
        job();
      }
    });
  };
}

void Frontend::on_accept(int fd) {
  // Descriptors are given out lowest first, so this one's number says how many are open. Clients
  // must leave some: lanes connect to engines only when they need them.
  if (fd >= client_fd_limit_) {
    close(fd);
    const net::TimePoint now = control_.now();
    if (now >= next_full_warning_) {
      next_full_warning_ = now + kFullWarningPause;
      log::warn("connections are refused: clients hold all {} descriptors open to them",
                client_fd_limit_);
    }
    return;
  }
  const auto least = std::ranges::min_element(
      lanes_, {}, [](const std::unique_ptr<Lane>& lane) { return lane->load(); });
  (*least)->accept(fd);
}

void Frontend::on_snapshot(const std::shared_ptr<const fleet::Fleet>& fleet) {
  if (loader_) {
    loader_->update(*fleet);  // first, so that a model that becomes known has its files
  }
  if (peers_) {
    return;  // nothing is served before views begin, with what peers know
  }
  if (kv_views_) {
    const net::TimePoint now = control_.now();
    kv_views_->update(fleet, now);  // first, so that a new worker's cache is looked up
    const bool settled = opened_ || kv_views_->settled() || (unsettled_ && now >= settle_by_);
    if (!settled && !std::exchange(unsettled_, true)) {
      settle_by_ = now + kSettling;
    }
    if (!settled) {
      return;
    }
    unsettled_ = false;
  }
  opened_ |= !fleet->models.empty();
  hand_out(fleet);
}

// The router follows last: who waits is woken by that and chooses with what its lane knows, so
// every lane must know the fleet by then. While some lane chooses among the former workers the
// router follows whoever asks.
void Frontend::hand_out(const std::shared_ptr<const fleet::Fleet>& fleet) {
  router_.expect(*fleet);
  handed_out_ = fleet->generation;
  const auto lanes_left = std::make_shared<std::size_t>(lanes_.size());
  for (const auto& lane : lanes_) {
    lane->set_fleet(fleet, [this, post = poster(), fleet, lanes_left] {
      post([this, fleet, lanes_left] {
        if (--*lanes_left == 0 && fleet->generation == handed_out_) {
          router_.retain(*fleet);
        }
      });
    });
  }
}

void Frontend::set_assets(const std::string& name,
                          const std::shared_ptr<const chat::ModelAssets>& assets) {
  bos_.erase(name);
  if (assets) {
    const tokenizer::Tokenizer& tokenizer = *assets->tokenizer;
    if (const std::string* bos = tokenizer.special_tokens().find("bos_token")) {
      bos_[name] = tokenizer.token_to_id(*bos).value_or(kAnyToken);
    }
  }
  for (const auto& lane : lanes_) {
    lane->set_assets(name, assets);
  }
}

engine::TokenId Frontend::bos_of(std::string_view model) const {
  auto found = bos_.find(model);
  if (found == bos_.end()) {
    found = bos_.find(std::string_view());
  }
  return found == bos_.end() ? kAnyToken : found->second;
}

void Frontend::drain(std::function<void()> on_done) {
  if (on_drained_) {
    finish_drain();
    return;
  }
  on_drained_ = std::move(on_done);
  lanes_busy_ = lanes_.size();
  for (const auto& lane : lanes_) {
    lane->drain([this, post = poster()] {
      post([this] {
        if (--lanes_busy_ == 0) {
          finish_drain();
        }
      });
    });
  }
  drain_deadline_.arm(options_.drain_timeout);
}

// The deadline has passed: what still runs is told so.
void Frontend::end_drain() {
  log::warn("the drain's time is over: running answers are ended");
  const Error error{ErrorCode::Draining, "The server is shutting down", {}};
  pool_->cancel_all(error);
  for (const auto& lane : lanes_) {
    lane->fail_all(error);
  }
  last_words_.arm(kLastWords);
}

void Frontend::finish_drain() {
  drain_deadline_.cancel();
  last_words_.cancel();
  if (const auto done = std::exchange(on_drained_, nullptr)) {
    done();
  }
}

void Frontend::collect(observe::TextWriter& writer) const {
  router_.collect(writer);
  if (kv_views_) {
    kv_views_->collect(writer);
    options_.fleet.load.counters->collect(writer);
  }
  options_.fleet.canary.counters->collect(writer);
  options_.fleet.circuit.board->collect(writer);
  struct Family {
    std::string_view name;
    std::string_view type;
    std::string_view help;
    std::atomic<std::uint64_t> net::http::ServerCounters::* counter;
  };
  using Counters = net::http::ServerCounters;
  static constexpr auto kFamilies = std::to_array<Family>({
      {"http_connections_total", "counter", "Accepted client connections",
       &Counters::connections_total},
      {"http_connections_open", "gauge", "Open client connections", &Counters::connections_open},
      {"http_requests_total", "counter", "Requests handed to a handler", &Counters::requests_total},
      {"disconnected_clients", "gauge", "Clients that left while a request ran",
       &Counters::clients_gone},
      {"http_slow_readers_cut_total", "counter", "Clients cut for not reading",
       &Counters::slow_readers_cut},
      {"http_bad_requests_total", "counter", "Requests refused before a handler",
       &Counters::bad_requests},
      {"http_bodies_refused_total", "counter",
       "Requests refused because unfinished ones held too many bytes", &Counters::bodies_refused},
  });
  for (const Family& family : kFamilies) {
    std::uint64_t total = 0;
    for (const auto& lane : lanes_) {
      if (const Counters* counters = lane->counters()) {
        total += (counters->*family.counter).load(std::memory_order_relaxed);
      }
    }
    writer.family(family.name, family.type, family.help);
    writer.sample({}, static_cast<double>(total));
  }
  const serving::CpuPool::Load load = pool_->load();
  const auto gauge = [&](std::string_view name, std::string_view help, std::size_t value) {
    writer.family(name, "gauge", help);
    writer.sample({}, static_cast<double>(value));
  };
  gauge("cpu_queue_jobs", "Large prompts that wait to be prepared", load.waiting);
  gauge("cpu_running_jobs", "Large prompts being prepared", load.running);
  gauge("cpu_queue_bytes", "Bodies of the large prompts that wait or are being prepared",
        load.bytes);
  gauge("http_unfinished_request_bytes",
        "Bytes of requests that are not complete, as far as they count",
        options_.limits.bodies->used());
  gauge("http_answer_bytes",
        "Bytes of answers that are not streamed and not yet taken, as far as they count",
        options_.service.answers->used());
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    writer.family(name, "counter", help);
    writer.sample({}, static_cast<double>(value));
  };
  const tokenizer::PieceCache::Stats cache = tokenizer::PieceCache::of_process().stats();
  counter("tokenizer_cache_hits_total", "Texts between special tokens whose tokens were kept",
          cache.hits);
  counter("tokenizer_cache_misses_total", "Texts between special tokens that had to be tokenized",
          cache.misses);
  gauge("tokenizer_cache_bytes", "Kept texts and tokens", cache.bytes);
  counter("log_lines_dropped_total", "Log lines dropped because stderr was slow", log::dropped());
}

}  // namespace fairlead::cli
