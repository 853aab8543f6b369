#include "routing/router.hpp"

#include <fmt/format.h>

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

// Choosing and booking happen under one lock, so that two reactors never both take the last place
// of the least-loaded worker. The lock is held for a scan of the set's slots at most.
class LoadTable {
 public:
  LoadTable(std::size_t slots, std::uint64_t seed)
      : in_flight_(slots), ids_(slots), random_(seed) {}

  std::shared_ptr<const fleet::Worker> choose(RouterMode mode, const fleet::WorkerSet& set,
                                              const RouteRequest& request) {
    const std::lock_guard lock(mutex_);
    candidates_.clear();
    for (const auto& worker : set.workers) {
      const bool excluded =
          std::ranges::find(request.excluded, worker->id) != request.excluded.end();
      const bool wanted = !request.worker_id || *request.worker_id == worker->id;
      if (worker->healthy && !excluded && wanted && worker->slot < in_flight_.size()) {
        candidates_.push_back(&worker);
      }
    }
    if (candidates_.empty()) {
      return nullptr;
    }
    const auto& chosen = *candidates_[pick(mode)];
    ++in_flight_[chosen->slot];
    ids_[chosen->slot] = chosen->id;
    return chosen;
  }

  void release(std::size_t slot) {
    const std::lock_guard lock(mutex_);
    --in_flight_[slot];
  }

  template <class Visit>
  void visit(Visit&& each) const {
    const std::lock_guard lock(mutex_);
    for (std::size_t slot = 0; slot < in_flight_.size(); ++slot) {
      if (ids_[slot] != 0) {
        each(ids_[slot], in_flight_[slot]);
      }
    }
  }

 private:
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
    return in_flight_[(*candidates_[candidate])->slot];
  }

  mutable std::mutex mutex_;
  std::vector<std::uint32_t> in_flight_;  // by slot
  std::vector<std::uint64_t> ids_;        // worker of a slot; 0 before its first request
  std::vector<const std::shared_ptr<const fleet::Worker>*> candidates_;  // scratch of one choice
  std::uint64_t turn_ = 0;
  std::mt19937_64 random_;
};

Reservation::Reservation(std::shared_ptr<LoadTable> table, std::uint32_t slot,
                         std::shared_ptr<const fleet::Worker> worker)
    : table_(std::move(table)), slot_(slot), worker_(std::move(worker)) {}

Reservation::Reservation(Reservation&& other) noexcept
    : table_(std::move(other.table_)), slot_(other.slot_), worker_(std::move(other.worker_)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    table_ = std::move(other.table_);
    slot_ = other.slot_;
    worker_ = std::move(other.worker_);
  }
  return *this;
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  if (table_) {
    table_->release(slot_);
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
    table = std::make_shared<LoadTable>(set.slot_count, seeds_());
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
                    : fmt::format("none of {} workers is usable", set.workers.size()));
  }
  const auto slot = static_cast<std::uint32_t>(worker->slot);
  return Reservation(table, slot, std::move(worker));
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
