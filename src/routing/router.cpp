#include "routing/router.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fairlead::routing {
namespace {

constexpr std::array<std::pair<std::string_view, RouterMode>, 5> kModes{{
    {"round-robin", RouterMode::RoundRobin},
    {"random", RouterMode::Random},
    {"power-of-two", RouterMode::PowerOfTwo},
    {"least-loaded", RouterMode::LeastLoaded},
    {"direct", RouterMode::Direct},
}};

}  // namespace

std::optional<RouterMode> parse_router_mode(std::string_view text) {
  const auto found =
      std::ranges::find(kModes, text, &std::pair<std::string_view, RouterMode>::first);
  return found == kModes.end() ? std::nullopt : std::optional(found->second);
}

std::uint64_t adapter_key(std::string_view adapter) {
  return adapter.empty() ? 0 : XXH3_64bits(adapter.data(), adapter.size());
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
          worker->has_adapter(request.adapter)) {
        occupy(*worker);
        candidates_.push_back(&worker);
      }
    }
    if (candidates_.empty()) {
      return nullptr;
    }
    const auto& chosen = *candidates_[pick(mode)];
    ++places_[chosen->slot].in_flight;
    return chosen;
  }

  void release(const fleet::Worker& worker) {
    const std::lock_guard lock(mutex_);
    if (Place& place = places_[worker.slot]; place.worker == worker.id) {
      --place.in_flight;
    } else if (const auto former = former_.find(worker.id);
               former != former_.end() && --former->second == 0) {
      former_.erase(former);
    }
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
  };

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
    place = {.worker = worker.id, .in_flight = 0};
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
  std::mt19937_64 random_;
};

Reservation::Reservation(std::shared_ptr<LoadTable> table,
                         std::shared_ptr<const fleet::Worker> worker)
    : table_(std::move(table)), worker_(std::move(worker)) {}

Reservation::Reservation(Reservation&& other) noexcept
    : table_(std::move(other.table_)), worker_(std::move(other.worker_)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    table_ = std::move(other.table_);
    worker_ = std::move(other.worker_);
  }
  return *this;
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  if (table_) {
    table_->release(*worker_);
    table_.reset();
    worker_.reset();
  }
}

Router::Router(RouterMode mode, std::uint64_t seed) : mode_(mode), seeds_(seed) {}

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
  if (mode_ == RouterMode::Direct && !request.worker_id) {
    return fail(ErrorCode::InvalidRequest,
                "router mode `direct` needs a worker id in the header x-dynamo-worker-instance-id",
                "x-dynamo-worker-instance-id");
  }
  const auto table = table_of(set);
  auto worker = table->choose(mode_, set, request);
  if (!worker) {
    return fail(ErrorCode::NoWorkers,
                request.worker_id
                    ? fmt::format("worker {} is not in routing", *request.worker_id)
                    : fmt::format("none of {} workers is usable{}", set.workers.size(),
                                  request.adapter.empty()
                                      ? std::string()
                                      : fmt::format(" with adapter `{}`", request.adapter)));
  }
  return Reservation(table, std::move(worker));
}

void Router::retain(const fleet::Fleet& fleet) {
  std::map<std::uint64_t, const fleet::WorkerSet*> sets;
  for (const auto& model : fleet.models) {
    for (const auto& set : model->worker_sets) {
      sets.emplace(set->id, set.get());
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(tables_, [&](const auto& entry) {
    const auto found = sets.find(entry.first);
    if (found == sets.end()) {
      return entry.second->idle();
    }
    entry.second->retain(*found->second);
    return false;
  });
}

std::uint32_t Router::in_flight(std::uint64_t worker_id) const {
  std::uint32_t total = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, table] : tables_) {
    table->visit(
        [&](std::uint64_t worker, std::uint32_t load) { total += worker == worker_id ? load : 0; });
  }
  return total;
}

void Router::collect(observe::TextWriter& writer) const {
  writer.family("worker_inflight_requests", "gauge",
                "Requests dispatched to a worker and not ended.");
  const std::lock_guard lock(mutex_);
  for (const auto& [id, table] : tables_) {
    table->visit([&](std::uint64_t worker, std::uint32_t load) {
      writer.sample(fmt::format("worker_id=\"{}\"", worker), load);
    });
  }
}

}  // namespace fairlead::routing
