#include "fleet/live_fleet.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.hpp"
#include "fleet/card_table.hpp"
#include "fleet/fleet_builder.hpp"

namespace fairlead::fleet {

class LiveFleet::Impl {
 public:
  Impl(LiveFleetOptions options, ClientFactory make_client, Resolver& resolver,
       OnSnapshot on_snapshot)
      : context_{.options = static_cast<const WatchOptions&>(options),
                 .make_client = std::move(make_client),
                 .resolver = resolver,
                 .model_name = options.model_name,
                 .on_change = [this] { publish(); },
                 .on_attempted = [this] { log_counts(); }},
        on_snapshot_(std::move(on_snapshot)),
        builder_(std::move(options.model_name), options.succession_after, options.decode_alone),
        again_([this] { publish(); }) {}

  void set_cards(std::string_view source, std::vector<Card> cards);
  void start();
  void report(WorkerId id, std::uint64_t incarnation, Outcome outcome);
  const std::shared_ptr<const Fleet>& snapshot() const { return snapshot_; }
  bool first_round_done() const {
    return std::ranges::all_of(watches_, [](const auto& watch) { return watch->attempted(); });
  }

 private:
  using Watches = std::vector<std::unique_ptr<EngineWatch>>;

  Watches::iterator find(const std::string& key);
  bool replaceable(WorkerId id) const;
  void withdraw(const std::string& key);
  void change(const Card& card);
  void publish();
  void log_counts();

  WatchContext context_;
  OnSnapshot on_snapshot_;
  FleetBuilder builder_;
  CardTable cards_;
  Watches watches_;  // in the order in which their cards appeared
  bool started_ = false;
  std::size_t logged_decode_ = 0;
  std::size_t logged_prefill_ = 0;
  std::shared_ptr<const Fleet> snapshot_ = std::make_shared<Fleet>();
  net::Timer again_;
};

LiveFleet::Impl::Watches::iterator LiveFleet::Impl::find(const std::string& key) {
  return std::ranges::find_if(watches_,
                              [&](const auto& watch) { return watch->member().key == key; });
}

void LiveFleet::Impl::withdraw(const std::string& key) {
  const auto found = find(key);
  if (started_) {
    log::info("worker withdrawn endpoint={} card={}", (*found)->member().card.endpoint.url, key);
  }
  watches_.erase(found);
}

/// Other taints are only noted. Everything else is a new life, which comes after all others, as a
/// worker that left and joined again would.
void LiveFleet::Impl::change(const Card& card) {
  const auto found = find(card.key());
  if (same_but_taints((*found)->member().card, card)) {
    log::info("worker's taints changed endpoint={} card={}", card.endpoint.url, card.key());
    (*found)->member().card = card;
    return;
  }
  log::info("worker's card changed endpoint={} card={}", card.endpoint.url, card.key());
  (*found)->take_card(card);
  std::rotate(found, found + 1, watches_.end());
}

void LiveFleet::Impl::set_cards(std::string_view source, std::vector<Card> cards) {
  const CardTable::Change changes = cards_.set(source, std::move(cards));
  for (const std::string& line : changes.refused) {
    log::error("{}", line);
  }
  if (changes.empty()) {
    return;
  }
  for (const std::string& key : changes.gone) {
    withdraw(key);
  }
  for (const Card& card : changes.changed) {
    change(card);
  }
  for (const Card& card : changes.joined) {
    watches_.push_back(std::make_unique<EngineWatch>(context_, card));
  }
  for (const auto& watch : watches_) {
    watch->member().adapters = cards_.adapters_of(watch->member().key);
  }
  if (!started_) {
    return;
  }
  for (std::size_t i = watches_.size() - changes.joined.size(); i < watches_.size(); ++i) {
    watches_[i]->start();
  }
  publish();
}

void LiveFleet::Impl::start() {
  started_ = true;
  for (const auto& watch : watches_) {
    watch->start();
  }
}

/// True when another worker of its set takes requests without reserve.
bool LiveFleet::Impl::replaceable(WorkerId id) const {
  for (const auto& model : snapshot_->models) {
    for (const auto& set : model->worker_sets) {
      const auto& workers = set->workers;
      if (std::ranges::any_of(workers, [&](const auto& worker) { return worker->id == id; })) {
        return std::ranges::any_of(workers, [&](const auto& worker) {
          return worker->id != id && worker->healthy && worker->circuit == Circuit::Closed;
        });
      }
    }
  }
  return false;
}

void LiveFleet::Impl::report(WorkerId id, std::uint64_t incarnation, Outcome outcome) {
  for (const auto& watch : watches_) {
    const Member& member = watch->member();
    if (member.id == id && member.up && member.incarnation == incarnation) {
      watch->report(outcome, outcome != Outcome::Served && replaceable(id));
      return;
    }
  }
}

void LiveFleet::Impl::publish() {
  std::vector<Member*> members;
  members.reserve(watches_.size());
  for (const auto& watch : watches_) {
    members.push_back(&watch->member());
  }
  const net::TimePoint now = net::Reactor::current()->now();
  BuiltFleet built = builder_.build(members, now, static_cast<std::int64_t>(std::time(nullptr)));
  for (const std::string& line : built.errors) {
    log::error("{}", line);
  }
  again_.cancel();
  if (built.again_at) {
    again_.arm(std::max(*built.again_at - now, net::Duration(0)));
  }
  snapshot_ = std::move(built.fleet);
  log_counts();
  on_snapshot_(snapshot_);
}

/// Once all engines were tried, and whenever the counts change after that.
void LiveFleet::Impl::log_counts() {
  if (!first_round_done()) {
    return;
  }
  std::size_t decode = 0;
  std::size_t prefill = 0;
  for (const auto& watch : watches_) {
    const Member& member = watch->member();
    if (member.up && member.exclusion.empty()) {
      ++(member.duty.role == Role::Prefill ? prefill : decode);
    }
  }
  if (decode != logged_decode_ || prefill != logged_prefill_) {
    log::info("serving directly dialed engines decode_engines={} prefill_engines={}", decode,
              prefill);
    logged_decode_ = decode;
    logged_prefill_ = prefill;
  }
}

LiveFleet::LiveFleet(LiveFleetOptions options, ClientFactory make_client, Resolver& resolver,
                     OnSnapshot on_snapshot)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(make_client), resolver,
                                   std::move(on_snapshot))) {}

LiveFleet::~LiveFleet() = default;

void LiveFleet::set_cards(std::string_view source, std::vector<Card> cards) {
  impl_->set_cards(source, std::move(cards));
}

void LiveFleet::start() { impl_->start(); }

void LiveFleet::report(WorkerId id, std::uint64_t incarnation, Outcome outcome) {
  impl_->report(id, incarnation, outcome);
}

std::shared_ptr<const Fleet> LiveFleet::snapshot() const { return impl_->snapshot(); }

bool LiveFleet::first_round_done() const { return impl_->first_round_done(); }

}  // namespace fairlead::fleet
