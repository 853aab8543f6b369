#include "routing/router.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace fairlead::routing {
namespace {

constexpr std::array<std::pair<std::string_view, RouterMode>, 6> kModes{{
    {"round-robin", RouterMode::RoundRobin},
    {"random", RouterMode::Random},
    {"power-of-two", RouterMode::PowerOfTwo},
    {"least-loaded", RouterMode::LeastLoaded},
    {"kv", RouterMode::Kv},
    {"direct", RouterMode::Direct},
}};

std::string_view mode_name(RouterMode mode) {
  return std::ranges::find(kModes, mode, &std::pair<std::string_view, RouterMode>::second)->first;
}

void keep_picks(PickCounts& sum, const PickCounts& more) {
  std::ranges::transform(sum, more, sum.begin(), std::plus());
}

// The error of a request that names a rank which no worker that it may go to has, usable or not.
std::optional<Error> rank_nobody_has(const fleet::WorkerSet& set, const RouteRequest& request) {
  bool asked = false;
  for (const auto& worker : set.workers) {
    if (request.rank && (!request.worker_id || *request.worker_id == worker->id)) {
      if (worker->has_rank(*request.rank)) {
        return std::nullopt;
      }
      asked = true;
    }
  }
  if (!asked) {
    return std::nullopt;
  }
  return Error{ErrorCode::InvalidRequest,
               request.worker_id
                   ? fmt::format("worker {} has no rank {}", *request.worker_id, *request.rank)
                   : fmt::format("no worker has rank {}", *request.rank),
               "x-dynamo-dp-rank"};
}

}  // namespace

std::optional<RouterMode> parse_router_mode(std::string_view text) {
  const auto found =
      std::ranges::find(kModes, text, &std::pair<std::string_view, RouterMode>::first);
  return found == kModes.end() ? std::nullopt : std::optional(found->second);
}

std::string demands_of(const RouteRequest& request) {
  std::string out;
  if (!request.adapter.empty()) {
    out += fmt::format(" with adapter `{}`", request.adapter);
  }
  if (!request.required_taints.empty()) {
    out += fmt::format(" with the taints `{}`", fmt::join(request.required_taints, "`, `"));
  }
  return out;
}

// Choosing and booking happen under one lock, so that two reactors never both take the last place
// of the least-loaded worker. The lock is held for a scan of the set's slots at most.
class LoadTable {
 public:
  explicit LoadTable(std::uint64_t seed) : random_(seed) {}

  std::shared_ptr<const fleet::Worker> choose(RouterMode mode, const fleet::WorkerSet& set,
                                              const RouteRequest& request) {
    const std::lock_guard lock(mutex_);
    if (places_.size() < set.slot_count) {
      places_.resize(set.slot_count);
    }
    candidates_.clear();
    for (const auto& worker : set.workers) {
      const bool excluded =
          std::ranges::find(request.excluded, worker->id) != request.excluded.end();
      const bool wanted = !request.worker_id || *request.worker_id == worker->id;
      if (worker->healthy && !excluded && wanted && worker->slot < places_.size() &&
          worker->has_adapter(request.adapter) && worker->has_taints(request.required_taints) &&
          (!request.rank || worker->has_rank(*request.rank))) {
        occupy(*worker);
        if (!on_trial(*worker) || places_[worker->slot].trials == 0) {
          candidates_.push_back(&worker);
        }
      }
    }
    if (candidates_.empty()) {
      return nullptr;
    }
    const auto& chosen = *candidates_[pick(mode)];
    ++picks_[static_cast<std::size_t>(request.worker_id ? PickReason::Pinned : PickReason::Mode)];
    ++places_[chosen->slot].in_flight;
    places_[chosen->slot].trials += on_trial(*chosen) ? 1 : 0;
    return chosen;
  }

  void release(const fleet::Worker& worker) {
    const std::lock_guard lock(mutex_);
    if (Place& place = places_[worker.slot]; place.worker == worker.id) {
      --place.in_flight;
      place.trials -= on_trial(worker) && place.trials > 0 ? 1 : 0;
    } else if (const auto former = former_.find(worker.id);
               former != former_.end() && --former->second == 0) {
      former_.erase(former);
    }
  }

  PickCounts picks() const {
    const std::lock_guard lock(mutex_);
    return picks_;
  }

  // True when nothing runs any more.
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return former_.empty() &&
           std::ranges::all_of(places_, [](const Place& place) { return place.in_flight == 0; });
  }

  // Workers that left and have nothing to do are no longer counted.
  void retain(const fleet::WorkerSet& set) {
    const std::lock_guard lock(mutex_);
    for (std::size_t slot = 0; slot < places_.size(); ++slot) {
      const fleet::Worker* worker = set.in_slot(slot);
      if (places_[slot].in_flight == 0 && (!worker || worker->id != places_[slot].worker)) {
        places_[slot] = {};
      }
    }
  }

  template <class Visit>
  void visit(Visit&& each) const {
    const std::lock_guard lock(mutex_);
    for (const Place& place : places_) {
      if (place.worker != 0) {
        each(place.worker, place.in_flight);
      }
    }
    for (const auto& [worker, in_flight] : former_) {
      each(worker, in_flight);
    }
  }

 private:
  struct Place {
    std::uint64_t worker = 0;  // 0 before the slot's first use
    std::uint32_t in_flight = 0;
    std::uint32_t trials = 0;  // of these, those that its half-open circuit let through
  };

  static bool on_trial(const fleet::Worker& worker) {
    return worker.circuit == fleet::Circuit::HalfOpen;
  }

  // A slot is given to another worker once its worker has left, which may still have requests to
  // end: those stay counted under its own id.
  void occupy(const fleet::Worker& worker) {
    Place& place = places_[worker.slot];
    if (place.worker == worker.id) {
      return;
    }
    if (place.in_flight > 0) {
      former_[place.worker] += place.in_flight;
    }
    place = {.worker = worker.id};
    if (const auto former = former_.find(worker.id); former != former_.end()) {
      place.in_flight = former->second;
      former_.erase(former);
    }
  }

  std::size_t pick(RouterMode mode) {
    const std::size_t count = candidates_.size();
    switch (mode) {
      case RouterMode::Random: return random_() % count;
      case RouterMode::PowerOfTwo: {
        if (count == 1) {
          return 0;
        }
        const std::size_t first = random_() % count;
        const std::size_t second = (first + 1 + random_() % (count - 1)) % count;
        return load(second) < load(first) ? second : first;
      }
      case RouterMode::Kv:
      case RouterMode::LeastLoaded: {
        std::size_t best = turn_++ % count;
        for (std::size_t step = 1, i = best; step < count; ++step) {
          i = (i + 1) % count;
          best = load(i) < load(best) ? i : best;
        }
        return best;
      }
      case RouterMode::RoundRobin:
      case RouterMode::Direct: return turn_++ % count;
    }
    return 0;
  }

  std::uint32_t load(std::size_t candidate) const {
    return places_[(*candidates_[candidate])->slot].in_flight;
  }

  mutable std::mutex mutex_;
  std::vector<Place> places_;                      // by slot
  std::map<std::uint64_t, std::uint32_t> former_;  // in flight at workers that lost their slot
  std::vector<const std::shared_ptr<const fleet::Worker>*> candidates_;  // scratch of one choice
  std::uint64_t turn_ = 0;
  PickCounts picks_{};
  std::mt19937_64 random_;
};

Reservation::Reservation(std::shared_ptr<LoadTable> table,
                         std::shared_ptr<const fleet::Worker> worker,
                         std::optional<std::uint32_t> rank)
    : table_(std::move(table)), worker_(std::move(worker)), rank_(rank) {}

Reservation::Reservation(std::unique_ptr<KvPart> part, std::shared_ptr<const fleet::Worker> worker)
    : kv_(std::move(part)), worker_(std::move(worker)), rank_(kv_->decision.target.rank) {}

Reservation::Reservation(Reservation&& other) noexcept
    : table_(std::move(other.table_)),
      kv_(std::move(other.kv_)),
      worker_(std::move(other.worker_)),
      rank_(other.rank_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    table_ = std::move(other.table_);
    kv_ = std::move(other.kv_);
    worker_ = std::move(other.worker_);
    rank_ = other.rank_;
  }
  return *this;
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  if (table_) {
    table_->release(*worker_);
    table_.reset();
  }
  if (kv_) {
    kv_->table->release(kv_->booking);
    kv_.reset();
  }
  worker_.reset();
}

void Reservation::prefill_complete() {
  if (kv_ && kv_->booking.prefill_tokens > 0) {
    kv_->table->prefill_complete(kv_->booking);
  }
}

void Reservation::add_output_tokens(std::uint32_t count) {
  if (!kv_ || !kv_->table->tracks_output()) {
    return;
  }
  KvBooking& booking = kv_->booking;
  booking.output_tokens += count;
  const auto blocks = [&](std::uint64_t tokens) {
    return static_cast<std::uint32_t>((tokens + booking.block_size - 1) / booking.block_size);
  };
  const std::uint32_t grown = blocks(std::uint64_t{booking.prompt_tokens} + booking.output_tokens) -
                              blocks(booking.prompt_tokens);
  if (grown > booking.output_blocks) {
    booking.output_blocks = grown;
    kv_->table->grow(booking);
  }
}

Router::Router(const RouterOptions& options) : options_(options), seeds_(options.seed) {}

Router::~Router() = default;

std::shared_ptr<LoadTable> Router::table_of(const fleet::WorkerSet& set) {
  const std::lock_guard lock(mutex_);
  auto& table = tables_[set.id];
  if (!table) {
    table = std::make_shared<LoadTable>(seeds_());
  }
  return table;
}

Result<Reservation> Router::choose(const fleet::WorkerSet& set, const RouteRequest& request) {
  if (mode() == RouterMode::Direct && !request.worker_id) {
    return fail(ErrorCode::InvalidRequest,
                "router mode `direct` needs a worker id in the header x-dynamo-worker-instance-id",
                "x-dynamo-worker-instance-id");
  }
  const auto table = table_of(set);
  auto worker = table->choose(mode(), set, request);
  if (!worker) {
    if (auto wrong = rank_nobody_has(set, request)) {
      return std::unexpected(std::move(*wrong));
    }
    return fail(ErrorCode::NoWorkers,
                request.worker_id ? fmt::format("worker {} is not in routing", *request.worker_id)
                                  : fmt::format("none of {} workers is usable{}",
                                                set.workers.size(), demands_of(request)));
  }
  return Reservation(table, std::move(worker), request.rank);
}

void Router::expect(const fleet::Fleet& fleet) {
  const std::lock_guard lock(mutex_);
  learn_thresholds(fleet);
}

// Under mutex_.
void Router::learn_thresholds(const fleet::Fleet& fleet) {
  for (const auto& model : fleet.models) {
    if (const auto own = model_thresholds_.find(model->files_name());
        own != model_thresholds_.end()) {
      for (const auto& set : model->worker_sets) {
        set_thresholds_[set->id] = own->second;
      }
    }
  }
}

void Router::retain(const fleet::Fleet& fleet) {
  std::map<std::uint64_t, std::shared_ptr<const fleet::WorkerSet>> sets;
  for (const auto& model : fleet.models) {
    for (const auto& set : model->worker_sets) {
      sets.emplace(set->id, set);
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(tables_, [&](const auto& entry) {
    const auto found = sets.find(entry.first);
    if (found == sets.end()) {
      if (!entry.second->idle()) {
        return false;
      }
      keep_picks(former_picks_, entry.second->picks());
      return true;
    }
    entry.second->retain(*found->second);
    return false;
  });
  set_thresholds_.clear();
  learn_thresholds(fleet);
  retain_kv(sets);
}

std::uint32_t Router::in_flight(std::uint64_t worker_id) const {
  std::uint32_t total = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, table] : tables_) {
    table->visit(
        [&](std::uint64_t worker, std::uint32_t load) { total += worker == worker_id ? load : 0; });
  }
  for (const auto& [id, set] : kv_tables_) {
    set.table->visit([&](const KvLoads::Target& target) {
      total += target.worker_id == worker_id ? target.requests : 0;
    });
  }
  return total;
}

void Router::collect(observe::TextWriter& writer) const {
  writer.family("worker_inflight_requests", "gauge",
                "Requests dispatched to a worker and not ended.");
  const std::lock_guard lock(mutex_);
  PickCounts picks = former_picks_;
  for (const auto& [id, table] : tables_) {
    keep_picks(picks, table->picks());
    table->visit([&](std::uint64_t worker, std::uint32_t load) {
      writer.sample(fmt::format("worker_id=\"{}\"", worker), load);
    });
  }
  std::map<std::uint64_t, std::uint32_t> in_flight;
  for (const auto& [id, set] : kv_tables_) {
    keep_picks(picks, set.table->picks());
    set.table->visit(
        [&](const KvLoads::Target& target) { in_flight[target.worker_id] += target.requests; });
  }
  for (const auto& [worker, load] : in_flight) {
    writer.sample(fmt::format("worker_id=\"{}\"", worker), load);
  }
  writer.family("router_picks_total", "counter", "Workers chosen, by reason.");
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const auto reason = static_cast<PickReason>(i);
    if (picks[i] > 0) {
      writer.sample(fmt::format("reason=\"{}\"", reason == PickReason::Mode ? mode_name(mode())
                                                                            : reason_name(reason)),
                    static_cast<double>(picks[i]));
    }
  }
  collect_kv(writer);
}

}  // namespace fairlead::routing
