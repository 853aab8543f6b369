#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "queue_testing.hpp"

// Against a plain model: lists that are searched, and rounds that are walked one by one.

namespace fairlead::routing {
namespace {

struct Item {
  QueueEntry entry;
  QueueDemand demand;
  double arrival = 0;
  std::uint64_t added = 0;
  bool tried = false;
};

class Model {
 public:
  explicit Model(const PolicyProfile& profile)
      : profile_(profile), credit_(profile.classes().size()), cursor_(credit_.size() - 1) {}

  void add(Item& item) {
    item.added = ++added_;
    item.tried = false;
    items_.push_back(&item);
  }

  Item* first(std::size_t of) const {
    Item* best = nullptr;
    for (Item* item : items_) {
      if (item->demand.policy_class == of && !item->tried && (!best || rank(*item) > rank(*best))) {
        best = item;
      }
    }
    return best;
  }

  template <class MayGo>
  Item* next(const MayGo& may_go) {
    std::vector<Item*> first_of(credit_.size());
    bool some = false;
    for (std::size_t i = 0; i < first_of.size(); ++i) {
      Item* item = first(i);
      first_of[i] = item && may_go(*item) ? item : nullptr;
      some |= first_of[i] != nullptr;
    }
    if (!some) {
      return nullptr;
    }
    for (bool arrived = false;; arrived = true) {
      if (Item* item = first_of[cursor_]) {
        credit_[cursor_] += arrived ? profile_.classes()[cursor_].quantum : 0;
        if (credit_[cursor_] >= cost(*item)) {
          credit_[cursor_] -= cost(*item);
          item->tried = true;
          return item;
        }
      }
      cursor_ = (cursor_ + 1) % credit_.size();
    }
  }

  void give_back(Item& item) {
    item.tried = false;
    credit_[item.demand.policy_class] += cost(item);
  }

  void leave(Item& item, bool served) {
    const std::size_t of = item.demand.policy_class;
    credit_[of] += item.tried && !served ? cost(item) : 0;
    std::erase(items_, &item);
    if (count(of) == 0) {
      credit_[of] = 0;
    }
  }

  std::size_t count(std::size_t of) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        items_, [&](const Item* item) { return item->demand.policy_class == of; }));
  }
  std::size_t size() const { return items_.size(); }
  Item& any(std::uint64_t draw) const { return *items_[draw % items_.size()]; }

 private:
  static std::uint64_t cost(const Item& item) {
    const std::int64_t uncached =
        std::int64_t{item.demand.prompt_tokens} - std::int64_t{item.demand.cached_tokens};
    return static_cast<std::uint64_t>(std::max<std::int64_t>(uncached, 1));
  }

  // Larger goes first.
  std::tuple<std::uint32_t, double, std::int64_t> rank(const Item& item) const {
    const double jump = item.demand.priority > 0 ? item.demand.priority : 0;
    const auto added = static_cast<std::int64_t>(item.added);
    switch (profile_.classes()[item.demand.policy_class].policy) {
      case QueuePolicy::Fcfs: return {item.demand.strict_priority, jump - item.arrival, -added};
      case QueuePolicy::Lcfs: return {item.demand.strict_priority, jump + item.arrival, added};
      case QueuePolicy::Wspt: break;
    }
    return {item.demand.strict_priority, (1 + jump) / static_cast<double>(cost(item)), -added};
  }

  const PolicyProfile& profile_;
  std::vector<Item*> items_;
  std::vector<std::uint64_t> credit_;
  std::size_t cursor_;
  std::uint64_t added_ = 0;
};

TEST(AdmissionRandom, DoesWhatThePlainModelDoes) {
  const auto profile = make_profile({"quantum: 40", "quantum: 1, queue_policy: wspt",
                                     "quantum: 100, queue_policy: lcfs",
                                     "quantum: 7, queue_policy: wspt", "quantum: 300"});
  std::array<std::size_t, 6> did{};
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    AdmissionQueue queue(profile, 10'000, kQueueStart);
    Model model(*profile);
    std::vector<std::unique_ptr<Item>> items;
    const std::size_t most = 1 + random() % 60;
    for (std::int64_t step = 0; step < 8000; ++step) {
      const std::uint64_t draw = random() % 100;
      if (draw < 40 && model.size() < most) {
        auto item = std::make_unique<Item>();
        const std::uint64_t arrival = step / 3;  // many at one time
        item->demand = {
            .policy_class = random() % 5,
            .prompt_tokens = static_cast<std::uint32_t>(random() % 300),
            .cached_tokens = static_cast<std::uint32_t>(random() % 150),
            .priority = random() % 3 == 0 ? static_cast<int>(random() % 5) - 2 : 0,
            .strict_priority = random() % 8 == 0 ? static_cast<std::uint32_t>(random() % 3) : 0};
        item->arrival = std::chrono::duration<double>(std::chrono::milliseconds(arrival)).count();
        ASSERT_TRUE(
            queue.add(item->entry, item->demand, at_ms(static_cast<std::int64_t>(arrival)), 1));
        model.add(*item);
        items.push_back(std::move(item));
        ++did[0];
      } else if (draw < 75) {
        const std::uint64_t blocked = random() % 4 == 0 ? random() % 32 : 0;  // classes
        Item* expected = model.next(
            [&](const Item& item) { return (blocked >> item.demand.policy_class & 1U) == 0; });
        QueueEntry* got = queue.next([&](const QueueEntry& entry) {
          return (blocked >> entry.demand().policy_class & 1U) == 0;
        });
        ASSERT_EQ(got, expected ? &expected->entry : nullptr)
            << "seed " << seed << " step " << step;
        ++did[got ? 1 : 2];
      } else if (model.size() > 0) {
        Item& item = model.any(random());
        const bool tried = item.tried;
        ASSERT_EQ(item.entry.state() == QueueEntry::State::Trying, tried);
        if (tried && draw < 84) {
          queue.give_back(item.entry);
          model.give_back(item);
          ++did[3];
        } else if (tried && draw < 95) {
          queue.done(item.entry);
          model.leave(item, true);
          ++did[4];
        } else {
          queue.remove(item.entry);
          model.leave(item, false);
          ++did[5];
        }
      }
      ASSERT_EQ(queue.size(), model.size());
      const std::size_t of = random() % 5;
      ASSERT_EQ(queue.load(of).requests, model.count(of));
      ASSERT_EQ(queue.backlog(of), model.count(of) > 0);
    }
  }
  EXPECT_GE(did[0] + did[1] + did[2] + did[3] + did[4] + did[5], 60'000u);
  for (const std::size_t count : did) {
    EXPECT_GE(count, 1000u);
  }
}

// Keeps a class busy: adds an entry for each that is served.
class Backlog {
 public:
  explicit Backlog(AdmissionQueue& queue) : queue_(queue) {}

  void add(std::size_t of, std::uint32_t tokens) {
    entries_.push_back(std::make_unique<QueueEntry>());
    ASSERT_TRUE(queue_.add(*entries_.back(), {.policy_class = of, .prompt_tokens = tokens},
                           at_ms(static_cast<std::int64_t>(entries_.size())), 1));
  }

 private:
  AdmissionQueue& queue_;
  std::vector<std::unique_ptr<QueueEntry>> entries_;
};

TEST(AdmissionRandom, BusyClassesAreServedByTheirQuanta) {
  const auto profile = make_profile({"quantum: 2048", "quantum: 512, queue_policy: wspt",
                                     "quantum: 64", "quantum: 9000, queue_policy: lcfs"});
  AdmissionQueue queue(profile, 100'000, kQueueStart);
  Backlog backlog(queue);
  std::mt19937_64 random(5);
  constexpr std::uint32_t kMost = 3000;
  const auto more = [&](std::size_t of) {
    backlog.add(of, 1 + static_cast<std::uint32_t>(random() % kMost));
  };
  for (std::size_t of = 0; of < 4; ++of) {
    for (int i = 0; i < 20; ++i) {
      more(of);
    }
  }
  std::array<double, 4> served{};
  for (int step = 0; step < 30'000; ++step) {
    QueueEntry* entry = queue.next();
    ASSERT_TRUE(entry);
    const std::size_t of = entry->demand().policy_class;
    served[of] += entry->demand().cost();
    queue.done(*entry);
    more(of);
    // Rounds of service differ by one, and by what credit may be left or lacking.
    for (std::size_t other = 0; other < 4; ++other) {
      const double mine = profile->classes()[of].quantum;
      const double theirs = profile->classes()[other].quantum;
      ASSERT_LE(std::abs(served[of] / mine - served[other] / theirs),
                1 + kMost / mine + kMost / theirs)
          << "classes " << of << " and " << other << " after " << step;
    }
  }
  EXPECT_GT(served[2], 50'000) << "the smallest share is a share";
}

TEST(AdmissionRandom, NobodyStarves) {
  // A request of 10,000 tokens in a class of quantum 10 has to wait 1,000 rounds, in which the
  // other gets 500 each; what is given back in between changes nothing.
  AdmissionQueue queue(make_profile({"quantum: 10", "quantum: 500"}), 100'000, kQueueStart);
  Backlog backlog(queue);
  backlog.add(0, 10'000);
  for (int i = 0; i < 5; ++i) {
    backlog.add(1, 250);
  }
  std::mt19937_64 random(9);
  std::uint64_t others = 0;
  while (true) {
    QueueEntry* entry = queue.next();
    ASSERT_TRUE(entry);
    if (random() % 2 == 0) {
      queue.give_back(*entry);
      continue;
    }
    const bool reached = entry->demand().policy_class == 0;
    others += reached ? 0 : entry->demand().cost();
    queue.done(*entry);
    if (reached) {
      break;
    }
    ASSERT_LE(others, 1001u * 500u);
    backlog.add(1, 250);
  }
  EXPECT_GE(others, 999u * 500u);
}

TEST(AdmissionRandom, InFcfsOnlyPriorityPassesAndOnlyBySoManySeconds) {
  AdmissionQueue queue(make_profile({"quantum: 1"}), 100'000, kQueueStart);
  QueueEntry patient;
  ASSERT_TRUE(queue.add(patient, {.prompt_tokens = 1}, at_ms(0), 1));
  std::vector<std::unique_ptr<QueueEntry>> urgent;
  std::int64_t ms = 0;
  // An endless stream of requests of priority 30 passes for 30 seconds, not longer.
  while (true) {
    ms += 10;
    urgent.push_back(std::make_unique<QueueEntry>());
    ASSERT_TRUE(queue.add(*urgent.back(), {.prompt_tokens = 1, .priority = 30}, at_ms(ms), 1));
    QueueEntry* entry = queue.next();
    if (entry == &patient) {
      break;
    }
    queue.done(*entry);
    ASSERT_LE(ms, 30'000);
  }
  EXPECT_GE(ms, 30'000);
}

}  // namespace
}  // namespace fairlead::routing
