#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "kv_testing.hpp"

// Random states: nothing that was booked stays behind. Bursts of one prompt.

namespace fairlead::routing {
namespace {

Router make_router(KvRouterConfig config = {}) {
  return Router({.mode = RouterMode::Kv, .seed = 3, .kv = config, .thresholds = {}});
}

KvRoute make_route(const std::vector<kv::SequenceHash>& prompt, std::uint32_t tail = 4) {
  return {.prompt = prompt,
          .prompt_tokens = static_cast<std::uint32_t>(prompt.size() * 16 + tail),
          .block_size = 16};
}

// Books what it is told to and compares the router's figures with its own.
class Mix {
 public:
  explicit Mix(std::uint32_t seed) : random_(seed), router_(make_router(config(seed))) {
    set_ = make_kv_set(4, 1 + seed % 2);
  }

  void run() {
    for (int step = 0; step < 60; ++step) {
      switch (random_() % 8) {
        case 0:
        case 1:
        case 2: start(); break;
        case 3:
          with_one([](Held& one) {
            one.reservation.prefill_complete();
            one.prefill = 0;
          });
          break;
        case 4:
          with_one([this](Held& one) { one.reservation.add_output_tokens(random_() % 40); });
          break;
        case 5:
        case 6: end_one(); break;
        default: change_worker(); break;
      }
      check();
    }
    while (!held_.empty()) {
      end_one();
    }
    check();
    fleet::Fleet empty;
    router_.retain(empty);
    EXPECT_EQ(metric(router_, "p_worker_inflight_requests{worker_id=\"100\"}"), -1);
  }

 private:
  struct Held {
    Reservation reservation;
    std::uint64_t worker;
    std::int64_t prefill;
  };

  static KvRouterConfig config(std::uint32_t seed) {
    KvRouterConfig config;
    config.track_output_blocks = seed % 3 != 0;
    config.assume_kv_reuse = seed % 5 != 0;
    config.router_temperature = seed % 7 == 0 ? 0.5 : 0;
    return config;
  }

  void start() {
    const auto prompt = make_prompt(random_() % 4, random_() % 10, random_() % 3, random_() % 10);
    KvRoute route = make_route(prompt, random_() % 16);
    if (random_() % 2 == 0) {
      route.expected_output = random_() % 100;
    }
    auto chosen = router_.choose(set_, {}, route);
    if (chosen) {
      const std::int64_t prefill = chosen->decision()->prefill_tokens;
      const std::uint64_t worker = chosen->worker().id;
      held_.push_back({.reservation = std::move(*chosen), .worker = worker, .prefill = prefill});
    }
  }

  template <class Do>
  void with_one(Do&& act) {
    if (!held_.empty()) {
      act(held_[random_() % held_.size()]);
    }
  }

  void end_one() {
    if (held_.empty()) {
      return;
    }
    std::swap(held_[random_() % held_.size()], held_.back());
    if (random_() % 2 == 0) {
      held_.back().reservation.release();
    } else {
      Reservation other = std::move(held_.back().reservation);
    }
    held_.pop_back();
  }

  // Dies, comes back, leaves the set, or gives its slot to another one.
  void change_worker() {
    auto next = std::make_shared<fleet::WorkerSet>(*set_);
    const std::size_t slot = random_() % 4;
    const auto at = std::ranges::find_if(next->workers,
                                         [&](const auto& worker) { return worker->slot == slot; });
    if (at == next->workers.end()) {
      auto back = std::make_shared<fleet::Worker>(*make_kv_set(4, 1)->workers[slot]);
      back->id = 100 + slot + 10 * (random_() % 2);
      const auto behind = std::ranges::find_if(
          next->workers, [&](const auto& worker) { return worker->slot > slot; });
      next->workers.insert(behind, back);
    } else if (random_() % 2 == 0) {
      next->workers.erase(at);
    } else {
      auto changed = std::make_shared<fleet::Worker>(**at);
      changed->healthy = !changed->healthy;
      *at = changed;
    }
    set_ = next;
  }

  void check() {
    std::map<std::uint64_t, std::uint32_t> requests;
    std::map<std::uint64_t, std::int64_t> prefill;
    for (const Held& one : held_) {
      ++requests[one.worker];
      prefill[one.worker] += one.prefill;
    }
    std::string text;
    observe::TextWriter writer(text, "p");
    router_.collect(writer);
    for (std::uint64_t worker = 100; worker < 115; ++worker) {
      ASSERT_EQ(router_.in_flight(worker), requests[worker]) << worker;
      ASSERT_EQ(total(text, "p_worker_active_prefill_tokens", worker), prefill[worker]);
      const auto blocks = total(text, "p_worker_active_decode_blocks", worker);
      if (requests[worker] == 0) {
        ASSERT_EQ(blocks, 0) << worker;
      } else {
        ASSERT_GE(blocks, 0) << worker;
      }
    }
  }

  static std::int64_t total(const std::string& text, const std::string& name,
                            std::uint64_t worker) {
    const std::string start = name + "{worker_id=\"" + std::to_string(worker) + "\"";
    std::int64_t sum = 0;
    for (auto at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
      sum += std::stoll(text.substr(text.find(' ', at) + 1));
    }
    return sum;
  }

  std::mt19937 random_;
  Router router_;
  std::shared_ptr<fleet::WorkerSet> set_;
  std::vector<Held> held_;
};

TEST(KvRandom, FiveHundredMixesLeaveNothingBooked) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Mix(seed).run();
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(KvRandom, ManyThreadsLeaveNothingBehind) {
  Router router = make_router({.track_output_blocks = true});
  const auto set = make_kv_set(70);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<std::uint32_t>(t));
      std::vector<Reservation> held;
      for (int i = 0; i < 3000; ++i) {
        const auto prompt = make_prompt(random() % 5, 20, random() % 5, random() % 20);
        auto chosen = router.choose(set, {}, make_route(prompt));
        ASSERT_TRUE(chosen);
        held.push_back(std::move(*chosen));
        held[random() % held.size()].prefill_complete();
        held[random() % held.size()].add_output_tokens(20);
        if (held.size() > 20) {
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::uint64_t worker = 100; worker < 170; ++worker) {
    EXPECT_EQ(router.in_flight(worker), 0u);
  }
}

// What predict-on-route knows: the prompts that were sent to each target.
class Predicted {
 public:
  void insert(std::uint64_t worker, const std::vector<kv::SequenceHash>& prompt) {
    held_[worker - 100].insert(prompt.begin(), prompt.end());
  }
  std::vector<kv::Overlap> find(const std::vector<kv::SequenceHash>& prompt) const {
    std::vector<kv::Overlap> out;
    for (const auto& [slot, hashes] : held_) {
      std::uint32_t depth = 0;
      while (depth < prompt.size() && hashes.contains(prompt[depth])) {
        ++depth;
      }
      if (depth > 0) {
        out.push_back(
            {.target = static_cast<kv::TargetId>(slot), .device = depth, .host = 0, .disk = 0});
      }
    }
    return out;
  }

 private:
  std::map<std::uint64_t, std::set<kv::SequenceHash>> held_;
};

std::map<std::uint64_t, int> burst(Router& router, int requests, bool finish_prefill,
                                   std::vector<Reservation>& held) {
  const auto set = make_kv_set(8);
  const auto places = make_places(*set);
  const auto prompt = make_prompt(1, 512);
  Predicted predicted;
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < requests; ++i) {
    KvRoute route = make_route(prompt, 10);
    route.places = places;
    const auto overlaps = predicted.find(prompt);
    route.predicted = overlaps;
    auto chosen = router.choose(set, {}, route);
    EXPECT_TRUE(chosen);
    predicted.insert(chosen->worker().id, prompt);
    ++counts[chosen->worker().id];
    if (finish_prefill) {
      chosen->prefill_complete();
    }
    held.push_back(std::move(*chosen));
  }
  return counts;
}

TEST(KvBurst, EqualPromptsLandOnFewWorkersAndOverloadNone) {
  std::vector<Reservation> held;
  Router router = make_router();
  const auto counts = burst(router, 64, false, held);
  EXPECT_LE(counts.size(), 3u) << "predict-on-route keeps the burst together";
  // The plain sum of loads scatters it: an idle worker is as near as one that computes the prompt.
  std::vector<Reservation> others;
  KvRouterConfig plain;
  plain.recompute_weight = 0;
  Router scattering = make_router(plain);
  EXPECT_EQ(burst(scattering, 64, false, others).size(), 8u);
}

TEST(KvBurst, AHotPrefixSpreadsWhenItsWorkerIsBusy) {
  // A worker that has the prompt is worth its 512 blocks of prefill and decode each, and a little
  // for the work saved: so many requests more than the others may run there, and no more.
  std::vector<Reservation> held;
  Router router = make_router();
  const auto counts = burst(router, 4000, true, held);
  ASSERT_EQ(counts.size(), 8u);
  int least = 4000;
  int most = 0;
  for (const auto& [worker, count] : counts) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  EXPECT_LE(most - least, 512 + 512 + 52 + 1);
}

}  // namespace
}  // namespace fairlead::routing
