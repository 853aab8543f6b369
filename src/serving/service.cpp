#include "serving/service.hpp"

#include <chrono>
#include <utility>
#include <vector>

#include "serving/leg.hpp"

namespace fairlead::serving {
namespace {

constexpr net::Duration kSweepInterval = std::chrono::seconds(1);

}  // namespace

Service::Service(net::Reactor& reactor, ClientFactory make_client, routing::Router& router,
                 CpuPool& pool, observe::Registry& registry, ServiceOptions options, Report report)
    : reactor_(reactor),
      make_client_(std::move(make_client)),
      router_(router),
      pool_(pool),
      registry_(registry),
      options_(std::move(options)),
      report_(std::move(report)),
      fleet_(std::make_shared<fleet::Fleet>()),
      random_(std::random_device{}()),
      releases_(std::make_unique<PendingReleases>(options_.release_timeout)),
      sweep_timer_([this] { on_sweep(); }) {}

Service::~Service() = default;

void Service::set_fleet(std::shared_ptr<const fleet::Fleet> fleet) {
  fleet_ = std::move(fleet);
  served_.reset();
  workers_.clear();
  for (const auto& model : fleet_->models) {
    for (const auto& set : model->worker_sets) {
      for (const auto& worker : set->workers) {
        workers_.try_emplace(worker->id, worker);
      }
    }
  }
  std::erase_if(clients_, [&](const auto& entry) { return !workers_.contains(entry.first); });
}

void Service::set_assets(std::string name, std::shared_ptr<const ModelContext> assets) {
  served_.reset();
  if (assets) {
    assets_[std::move(name)] = std::move(assets);
  } else {
    assets_.erase(name);
  }
}

std::shared_ptr<const ModelContext> Service::assets(const fleet::Model& model) const {
  auto found = assets_.find(model.files_name());
  if (found == assets_.end()) {
    found = assets_.find(std::string_view());
  }
  return found == assets_.end() ? nullptr : found->second;
}

const std::shared_ptr<const ServedModels>& Service::served() {
  if (!served_) {
    std::vector<ServedModel> models;
    models.reserve(fleet_->models.size());
    for (const auto& model : fleet_->models) {
      models.push_back({model, assets(*model)});
    }
    served_ = std::make_shared<const ServedModels>(std::move(models));
  }
  return served_;
}

std::shared_ptr<const routing::KvSetView> Service::kv_view(std::uint64_t set) const {
  if (!kv_views_) {
    return nullptr;
  }
  const auto found = kv_views_->find(set);
  return found == kv_views_->end() ? nullptr : found->second;
}

std::shared_ptr<const fleet::Worker> Service::worker(fleet::WorkerId id) const {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : found->second;
}

std::shared_ptr<engine::EngineClient> Service::client(const fleet::Worker& worker) {
  // Another life of the engine may speak another dialect: start over with what its probe found.
  const auto found = clients_.find(worker.id);
  if (found != clients_.end() && found->second.incarnation == worker.incarnation) {
    return found->second.client;
  }
  std::shared_ptr<engine::EngineClient> client = make_client_(worker.client_options());
  clients_[worker.id] = {.incarnation = worker.incarnation, .client = client};
  return client;
}

void Service::report_failure(const fleet::Worker& worker, ErrorCode code) {
  if (const auto outcome = fleet::outcome_of(code)) {
    report_(worker.id, worker.incarnation, *outcome);
  }
}

void Service::report_served(const fleet::Worker& worker) {
  if (worker.activity) {
    worker.activity->served();
  }
  if (worker.circuit == fleet::Circuit::HalfOpen) {
    report_(worker.id, worker.incarnation, fleet::Outcome::Served);
  }
}

observe::ModelShard& Service::metrics(std::string_view model) {
  const auto found = shards_.find(model);
  if (found != shards_.end()) {
    return *found->second;
  }
  observe::ModelShard& shard = registry_.shard(model, static_cast<std::size_t>(reactor_.index));
  shards_.emplace(std::string(model), &shard);
  return shard;
}

double Service::seconds() const {
  return std::chrono::duration<double>(reactor_.now().time_since_epoch()).count();
}

bool Service::may_warn() {
  const double now = seconds();
  if (warned_at_ && now - *warned_at_ < 1) {
    return false;
  }
  warned_at_ = now;
  return true;
}

void Service::sweep(Sweep& item) {
  sweeps_.push_back(item);
  if (!sweep_timer_.armed()) {
    sweep_timer_.arm(kSweepInterval);
  }
}

void Service::on_sweep() {
  const net::TimePoint now = reactor_.now();
  sweeps_.for_each([&](Sweep& item) { item.tick(now); });
  if (!sweeps_.empty()) {
    sweep_timer_.arm(kSweepInterval);
  }
}

}  // namespace fairlead::serving
