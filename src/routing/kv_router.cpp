#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "routing/queue_stats.hpp"
#include "routing/router.hpp"

// The part of Router that is about kv mode.

namespace fairlead::routing {
namespace {

// Engines that do both count as decode workers.
std::string_view worker_type(fleet::Role role) {
  return role == fleet::Role::Prefill ? "prefill" : "decode";
}

}  // namespace

std::shared_ptr<KvTable> Router::kv_table_of(const fleet::WorkerSet& set) {
  const std::lock_guard lock(mutex_);
  KvSet& entry = kv_tables_[set.id];
  if (!entry.table) {
    entry = {.table = std::make_shared<KvTable>(options_.kv, seeds_()),
             .worker_type = worker_type(set.role)};
    const auto own = set_thresholds_.find(set.id);
    entry.table->set_thresholds(own == set_thresholds_.end() ? options_.thresholds : own->second);
  }
  return entry.table;
}

Result<Reservation> Router::choose(const std::shared_ptr<const fleet::WorkerSet>& set,
                                   const RouteRequest& request, const KvRoute& route,
                                   KvWaiter* waiter) {
  if (mode() != RouterMode::Kv) {
    return choose(*set, request);
  }
  auto table = kv_table_of(*set);
  if (waiter && queues(waiter->model())) {
    table->open_queue(waiter->model(), options_.policies->profile(waiter->model()),
                      options_.queue_limit);
  }
  auto picked = table->choose(set, request, route, true, waiter);
  if (!picked) {
    return std::unexpected(std::move(picked.error()));
  }
  if (!picked->worker) {
    return Reservation();
  }
  auto part = std::make_unique<Reservation::KvPart>(Reservation::KvPart{
      .table = std::move(table), .booking = picked->booking, .decision = picked->decision});
  return Reservation(std::move(part), std::move(picked->worker));
}

bool Router::queues(std::string_view model) const {
  return mode() == RouterMode::Kv && options_.policies &&
         std::ranges::any_of(options_.policies->profile(model)->classes(), &PolicyClass::queues);
}

Result<KvDecision> Router::preview(const std::shared_ptr<const fleet::WorkerSet>& set,
                                   const RouteRequest& request, const KvRoute& route) {
  auto picked = kv_table_of(*set)->choose(set, request, route, false);
  if (!picked) {
    return std::unexpected(std::move(picked.error()));
  }
  return picked->decision;
}

void Router::set_thresholds(const fleet::Model& model, const BusyThresholds& thresholds) {
  const std::lock_guard lock(mutex_);
  put_thresholds(model, thresholds);
}

BusyThresholds Router::change_thresholds(const fleet::Model& model, const ThresholdChange& change) {
  const std::lock_guard lock(mutex_);
  BusyThresholds out = thresholds_of(model);
  out.active_decode_blocks = change.active_decode_blocks.value_or(out.active_decode_blocks);
  out.active_prefill_tokens = change.active_prefill_tokens.value_or(out.active_prefill_tokens);
  out.active_prefill_tokens_frac =
      change.active_prefill_tokens_frac.value_or(out.active_prefill_tokens_frac);
  if (change != ThresholdChange{}) {
    put_thresholds(model, out);
  }
  return out;
}

// Under mutex_.
void Router::put_thresholds(const fleet::Model& model, const BusyThresholds& thresholds) {
  model_thresholds_.insert_or_assign(model.files_name(), thresholds);
  for (const auto& set : model.worker_sets) {
    set_thresholds_[set->id] = thresholds;
    if (const auto found = kv_tables_.find(set->id); found != kv_tables_.end()) {
      found->second.table->set_thresholds(thresholds);
    }
  }
}

BusyThresholds Router::thresholds(const fleet::Model& model) const {
  const std::lock_guard lock(mutex_);
  return thresholds_of(model);
}

// Under mutex_.
BusyThresholds Router::thresholds_of(const fleet::Model& model) const {
  const auto own = model_thresholds_.find(model.files_name());
  return own == model_thresholds_.end() ? options_.thresholds : own->second;
}

bool Router::wants_used_blocks() const {
  const std::lock_guard lock(mutex_);
  return options_.thresholds.active_decode_blocks ||
         std::ranges::any_of(model_thresholds_, [](const auto& entry) {
           return entry.second.active_decode_blocks.has_value();
         });
}

void Router::report_used_blocks(std::uint64_t worker_id, std::uint32_t rank,
                                std::optional<std::uint64_t> blocks) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, set] : kv_tables_) {
    set.table->report_used(worker_id, rank, blocks);
  }
}

// Under mutex_.
void Router::retain_kv(
    const std::map<std::uint64_t, std::shared_ptr<const fleet::WorkerSet>>& sets) {
  std::erase_if(kv_tables_, [&](const auto& entry) {
    KvTable& table = *entry.second.table;
    const auto found = sets.find(entry.first);
    if (found == sets.end()) {
      table.dissolve();
      if (!table.idle()) {
        return false;
      }
      const PickCounts picks = table.picks();
      for (std::size_t i = 0; i < picks.size(); ++i) {
        former_picks_[i] += picks[i];
      }
      former_queues_.add(entry.second.worker_type, table.queue_stats());
      return true;
    }
    table.retain(found->second);
    const auto own = set_thresholds_.find(entry.first);
    table.set_thresholds(own == set_thresholds_.end() ? options_.thresholds : own->second);
    return false;
  });
}

// Under mutex_.
void Router::collect_kv(observe::TextWriter& writer) const {
  if (mode() != RouterMode::Kv) {
    return;
  }
  const auto family = [&](std::string_view name, std::string_view help, auto value) {
    writer.family(name, "gauge", help);
    for (const auto& [id, set] : kv_tables_) {
      set.table->visit([&](const KvLoads::Target& target) {
        if (const std::optional<double> number = value(target)) {
          writer.sample(fmt::format("worker_id=\"{}\",dp_rank=\"{}\",worker_type=\"{}\"",
                                    target.worker_id, target.rank, set.worker_type),
                        *number);
        }
      });
    }
  };
  family("worker_active_decode_blocks", "KV blocks booked for running requests.",
         [](const KvLoads::Target& target) -> std::optional<double> {
           return static_cast<double>(target.active_blocks());
         });
  family("worker_active_prefill_tokens", "Prompt tokens booked and not computed yet.",
         [](const KvLoads::Target& target) -> std::optional<double> {
           return static_cast<double>(target.prefill_tokens);
         });
  family("worker_kv_used_blocks", "KV blocks in use as the engine reports them.",
         [](const KvLoads::Target& target) -> std::optional<double> {
           return target.used_blocks ? std::optional(static_cast<double>(*target.used_blocks))
                                     : std::nullopt;
         });
  QueueReport queues = former_queues_;
  for (const auto& [id, set] : kv_tables_) {
    queues.add(set.worker_type, set.table->queue_stats());
  }
  queues.write(writer);
}

}  // namespace fairlead::routing
