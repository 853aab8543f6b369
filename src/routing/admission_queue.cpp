#include "routing/admission_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace fairlead::routing {
namespace {

double key_of(QueuePolicy policy, const QueueDemand& demand, std::chrono::duration<double> since) {
  const double jump = std::max(demand.priority, 0);
  switch (policy) {
    case QueuePolicy::Fcfs: return jump - since.count();
    case QueuePolicy::Lcfs: return jump + since.count();
    case QueuePolicy::Wspt: break;
  }
  return (1 + jump) / demand.cost();
}

// Whether `present` has reached a limit per worker.
bool reached(std::uint64_t present, const std::optional<std::uint64_t>& limit,
             std::size_t workers) {
  return limit && (workers == 0 || present / workers >= *limit);
}

std::unexpected<Error> full(const PolicyClass& of, std::uint64_t present, std::string_view what) {
  return fail(ErrorCode::QueueFull,
              fmt::format("The queue `{}` is full: {} {} wait for a worker, please retry later",
                          of.name, present, what));
}

}  // namespace

QueueEntry::~QueueEntry() {
  if (queue_) {
    queue_->remove(*this);
  }
}

AdmissionQueue::AdmissionQueue(std::shared_ptr<const PolicyProfile> profile, std::size_t limit,
                               Clock::time_point start)
    : profile_(std::move(profile)),
      limit_(limit),
      start_(start),
      classes_(profile_->classes().size()),
      cursor_(classes_.size() - 1) {}

AdmissionQueue::~AdmissionQueue() {
  const auto forget = [](QueueEntry* entry) {
    entry->queue_ = nullptr;
    entry->state_ = QueueEntry::State::Out;
  };
  std::ranges::for_each(tried_, forget);
  for (const Class& each : classes_) {
    std::ranges::for_each(each.heap, forget);
  }
}

Result<> AdmissionQueue::add(QueueEntry& entry, const QueueDemand& demand,
                             Clock::time_point arrival, std::size_t workers) {
  const PolicyClass& rules = profile_->classes()[demand.policy_class];
  Class& to = classes_[demand.policy_class];
  const auto refuse = [&](QueueLimit limit, std::uint64_t present, std::string_view what) {
    ++to.load.refused[static_cast<std::size_t>(limit)];
    return full(rules, present, what);
  };
  if (size_ >= limit_) {
    return refuse(QueueLimit::AllClasses, size_, "requests of all classes");
  }
  if (reached(to.load.requests, rules.request_queue_limit_per_worker, workers)) {
    return refuse(QueueLimit::Requests, to.load.requests, "requests");
  }
  if (reached(to.load.prompt_tokens, rules.raw_isl_token_queue_limit_per_worker, workers)) {
    return refuse(QueueLimit::PromptTokens, to.load.prompt_tokens, "prompt tokens");
  }
  if (reached(to.load.cached_tokens, rules.cached_token_queue_limit_per_worker, workers)) {
    return refuse(QueueLimit::CachedTokens, to.load.cached_tokens, "cached tokens");
  }
  entry.queue_ = this;
  entry.demand_ = demand;
  entry.demand_.cached_tokens = std::min(demand.cached_tokens, demand.prompt_tokens);
  entry.arrival_ = arrival;
  entry.key_ = key_of(rules.policy, demand, arrival - start_);
  entry.sequence_ = added_++;
  ++size_;
  ++to.load.requests;
  to.load.prompt_tokens += entry.demand_.prompt_tokens;
  to.load.cached_tokens += entry.demand_.cached_tokens;
  push(to, entry);
  return {};
}

QueueEntry* AdmissionQueue::candidate(Class& of, const MayGo& may_go) {
  if (of.heap.empty()) {
    return nullptr;
  }
  if (of.asked != calls_) {
    of.asked = calls_;
    of.may_go = !may_go || may_go(*of.heap.front());
  }
  return of.may_go ? of.heap.front() : nullptr;
}

QueueEntry* AdmissionQueue::next() { return next(MayGo()); }

QueueEntry* AdmissionQueue::next(const MayGo& may_go) {
  if (size_ == trying_) {
    return nullptr;
  }
  ++calls_;
  if (Class& turn = classes_[cursor_]; const QueueEntry* first = candidate(turn, may_go)) {
    if (first->demand_.cost() <= turn.credit) {
      return take(turn);
    }
  }
  while (true) {
    std::uint64_t rounds = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t step = 0; step < classes_.size(); ++step) {
      cursor_ = (cursor_ + 1) % classes_.size();
      Class& turn = classes_[cursor_];
      const QueueEntry* first = candidate(turn, may_go);
      if (!first) {
        continue;
      }
      const std::uint64_t quantum = profile_->classes()[cursor_].quantum;
      turn.credit += quantum;
      if (first->demand_.cost() <= turn.credit) {
        return take(turn);
      }
      rounds = std::min(rounds, (first->demand_.cost() - turn.credit - 1) / quantum);
    }
    if (rounds == std::numeric_limits<std::uint64_t>::max()) {
      return nullptr;  // none may go; the cursor is where it was
    }
    // In so many further rounds nobody's credit suffices; in the one after them somebody's does.
    for (std::size_t index = 0; index < classes_.size(); ++index) {
      if (candidate(classes_[index], may_go)) {
        classes_[index].credit += rounds * profile_->classes()[index].quantum;
      }
    }
  }
}

QueueEntry* AdmissionQueue::take(Class& of) {
  QueueEntry& entry = *of.heap.front();
  erase(of, entry);
  of.credit -= entry.demand_.cost();
  ++of.load.trying;
  ++trying_;
  entry.state_ = QueueEntry::State::Trying;
  entry.position_ = tried_.size();
  tried_.push_back(&entry);
  return &entry;
}

// Ends the trying of an entry.
void AdmissionQueue::retract(QueueEntry& entry) {
  tried_[entry.position_] = tried_.back();
  tried_[entry.position_]->position_ = entry.position_;
  tried_.pop_back();
  --classes_[entry.demand_.policy_class].load.trying;
  --trying_;
}

void AdmissionQueue::give_back(QueueEntry& entry) {
  Class& to = classes_[entry.demand_.policy_class];
  retract(entry);
  to.credit += entry.demand_.cost();
  push(to, entry);
}

void AdmissionQueue::done(QueueEntry& entry) {
  retract(entry);
  leave(entry);
}

void AdmissionQueue::remove(QueueEntry& entry) {
  if (entry.state_ == QueueEntry::State::Out) {
    return;
  }
  Class& from = classes_[entry.demand_.policy_class];
  if (entry.state_ == QueueEntry::State::Waiting) {
    erase(from, entry);
  } else {
    from.credit += entry.demand_.cost();
    retract(entry);
  }
  leave(entry);
}

void AdmissionQueue::leave(QueueEntry& entry) {
  Class& from = classes_[entry.demand_.policy_class];
  --size_;
  --from.load.requests;
  from.load.prompt_tokens -= entry.demand_.prompt_tokens;
  from.load.cached_tokens -= entry.demand_.cached_tokens;
  if (from.load.requests == 0) {
    from.credit = 0;
  }
  entry.queue_ = nullptr;
  entry.state_ = QueueEntry::State::Out;
}

bool AdmissionQueue::before(const QueueEntry& a, const QueueEntry& b) const {
  if (a.demand_.strict_priority != b.demand_.strict_priority) {
    return a.demand_.strict_priority > b.demand_.strict_priority;
  }
  if (a.key_ != b.key_) {
    return a.key_ > b.key_;
  }
  const bool latest = profile_->classes()[a.demand_.policy_class].policy == QueuePolicy::Lcfs;
  return latest ? a.sequence_ > b.sequence_ : a.sequence_ < b.sequence_;
}

void AdmissionQueue::push(Class& to, QueueEntry& entry) {
  entry.state_ = QueueEntry::State::Waiting;
  entry.position_ = to.heap.size();
  to.heap.push_back(&entry);
  rise(to, entry.position_);
}

void AdmissionQueue::erase(Class& from, QueueEntry& entry) {
  const std::size_t hole = entry.position_;
  QueueEntry* last = from.heap.back();
  from.heap.pop_back();
  if (last != &entry) {
    from.heap[hole] = last;
    last->position_ = hole;
    rise(from, hole);
    sink(from, last->position_);
  }
}

void AdmissionQueue::rise(Class& in, std::size_t position) {
  QueueEntry* entry = in.heap[position];
  while (position > 0) {
    const std::size_t parent = (position - 1) / 2;
    if (!before(*entry, *in.heap[parent])) {
      break;
    }
    in.heap[position] = in.heap[parent];
    in.heap[position]->position_ = position;
    position = parent;
  }
  in.heap[position] = entry;
  entry->position_ = position;
}

void AdmissionQueue::sink(Class& in, std::size_t position) {
  QueueEntry* entry = in.heap[position];
  while (true) {
    std::size_t child = 2 * position + 1;
    if (child >= in.heap.size()) {
      break;
    }
    if (child + 1 < in.heap.size() && before(*in.heap[child + 1], *in.heap[child])) {
      ++child;
    }
    if (!before(*in.heap[child], *entry)) {
      break;
    }
    in.heap[position] = in.heap[child];
    in.heap[position]->position_ = position;
    position = child;
  }
  in.heap[position] = entry;
  entry->position_ = position;
}

}  // namespace fairlead::routing
