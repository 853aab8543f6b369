// links: fl_base fl_observe fl_kv
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kv/recovery.hpp"

// Any order of batches, answers, breaks and pauses. Sequences reach the view in ascending order and
// once, what is held is bounded, and an engine that behaves from here on is followed exactly.

namespace {

using fairlead::kv::Applied;
using fairlead::kv::Coverage;
using fairlead::kv::Recovery;
using fairlead::kv::RecoveryOptions;
using fairlead::kv::StaleReason;
using fairlead::kv::ViewState;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

class Host : public fairlead::kv::RecoveryHost {
 public:
  Applied apply(std::uint64_t sequence, std::string_view payload) override {
    // Only what could not be decoded may come again, and once.
    const bool again = last == sequence && undecodable == 1;
    require(!last || sequence > *last || again);
    last = sequence;
    undecodable = payload.starts_with("bad") ? (again ? 2 : 1) : 0;
    if (undecodable != 0) {
      return {.outcome = Applied::Outcome::Undecodable};
    }
    if (payload.starts_with("rank")) {
      return {.outcome = Applied::Outcome::WrongRank};
    }
    view.emplace_back(payload);
    return {.stored = 4, .removed = payload.size() % 5, .cleared = payload.starts_with("clear")};
  }
  void clear() override {
    view.clear();
    last.reset();
    undecodable = 0;
  }
  bool request_replay(std::uint64_t start) override {
    require(!asked);
    if (refuse) {
      return false;
    }
    asked = start;
    position = start;
    return true;
  }
  void abandon_replay() override { asked.reset(); }
  void gap_detected(std::uint64_t expected, std::uint64_t got) override { require(got > expected); }

  std::vector<std::string> view;
  std::optional<std::uint64_t> last;
  int undecodable = 0;  // times that the last one could not be decoded
  std::optional<std::uint64_t> asked;
  std::uint64_t position = 0;  // next number of the answer
  bool refuse = false;
};

class Run {
 public:
  Run(const RecoveryOptions& options, FuzzedDataProvider& input)
      : options_(options), input_(input), recovery_(options, host_, now_) {}

  void misbehave() {
    while (input_.remaining_bytes() > 0) {
      step(input_.ConsumeIntegralInRange<int>(0, 12));
      check();
    }
  }

  void behave() {
    host_.refuse = false;
    ++life_;
    next_ = 0;
    recovery_.disconnected(now_);
    recovery_.connected(now_);
    for (int i = 0; i < 300; ++i) {
      if (i % 40 == 0) {
        recovery_.live(next_, payload(next_), now_);
        ++next_;
      } else if (host_.asked) {
        answer_all();
      } else if (done()) {
        break;
      } else if (recovery_.deadline() != Recovery::TimePoint::max()) {
        now_ = std::max(now_, recovery_.deadline());
        recovery_.tick(now_);
      }
      check();
    }
    require(done());
  }

 private:
  std::string payload(std::uint64_t sequence) const {
    return "life " + std::to_string(life_) + ":" + std::to_string(sequence);
  }

  void check() const {
    require(recovery_.held() <= options_.buffer_batches);
    require(!recovery_.usable() || recovery_.reason() == StaleReason::None);
    require((recovery_.state() == ViewState::Stale) == (recovery_.reason() != StaleReason::None));
  }

  // The view is what this life published, and nothing else. After sequences that went back again
  // and again it is called unstable for a minute, however right it may be.
  bool done() const {
    if (host_.view.size() != next_ || recovery_.coverage() != Coverage::Complete) {
      return false;
    }
    for (std::uint64_t i = 0; i < next_; ++i) {
      if (host_.view[i] != payload(i)) {
        return false;
      }
    }
    return recovery_.state() == ViewState::Live ||
           (!options_.replay && recovery_.reason() == StaleReason::Unstable);
  }

  void answer_all() {
    const std::uint64_t start = *host_.asked;
    for (std::uint64_t i = start; i < next_ && host_.asked == start; ++i) {
      recovery_.replayed(i, payload(i), now_);
    }
    if (host_.asked == start) {
      end_answer();
    }
  }

  void end_answer() {
    host_.asked.reset();
    recovery_.replayed(Recovery::kEndMarker, {}, now_);
  }

  std::string some_payload(std::uint64_t sequence) {
    switch (input_.ConsumeIntegralInRange<int>(0, 5)) {
      case 0: return "bad";
      case 1: return "rank";
      case 2: return "clear";
      case 3: return input_.ConsumeRandomLengthString(8);
      default: return payload(sequence);
    }
  }

  void step(int what) {
    switch (what) {
      case 0:
      case 1:
        recovery_.live(next_, some_payload(next_), now_);
        ++next_;
        break;
      case 2: ++next_; break;
      case 3: {
        const std::uint64_t sequence = input_.ConsumeBool()
                                           ? input_.ConsumeIntegral<std::uint64_t>()
                                           : input_.ConsumeIntegralInRange<std::uint64_t>(0, 20);
        recovery_.live(sequence, some_payload(sequence), now_);
        break;
      }
      case 4: recovery_.connected(now_); break;
      case 5: recovery_.disconnected(now_); break;
      case 6:
        if (host_.asked && host_.position < next_) {
          host_.position += input_.ConsumeIntegralInRange<std::uint64_t>(0, 2);
          const std::uint64_t sequence = host_.position++;
          recovery_.replayed(sequence, payload(sequence), now_);
        }
        break;
      case 7:
        if (host_.asked) {
          end_answer();
        }
        break;
      case 8: {
        const std::uint64_t sequence = input_.ConsumeIntegralInRange<std::uint64_t>(0, 20);
        recovery_.replayed(sequence, some_payload(sequence), now_);
        break;
      }
      case 9:
        ++life_;
        next_ = 0;
        break;
      case 10:
        if (recovery_.deadline() != Recovery::TimePoint::max()) {
          now_ = std::max(now_, recovery_.deadline());
        }
        recovery_.tick(now_);
        break;
      case 11: recovery_.new_instance(now_); break;
      case 12: host_.refuse = input_.ConsumeBool(); break;
      default: break;
    }
  }

  RecoveryOptions options_;
  FuzzedDataProvider& input_;
  Recovery::TimePoint now_{std::chrono::hours(1)};
  Host host_;
  Recovery recovery_;
  int life_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  RecoveryOptions options;
  options.replay = input.ConsumeBool();
  options.buffer_batches = input.ConsumeIntegralInRange<std::size_t>(2, 6);
  options.buffer_bytes = input.ConsumeIntegralInRange<std::size_t>(30, 200);
  Run run(options, input);
  run.misbehave();
  run.behave();
  return 0;
}
