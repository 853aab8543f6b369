#include "kv_replay/workload.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/json.hpp"
#include "mock/block_pool.hpp"
#include "mock/timing.hpp"

namespace fairlead::kv_replay {
namespace {

double milliseconds(mock::Nanos time) { return static_cast<double>(time.count()) / 1e6; }

// An engine that admits every request at once if its cache has room, else in order of arrival: its
// prompt is in the cache after the prefill, generated blocks when they are full, and all of it is
// let go at the end.
class Engine {
 public:
  Engine(std::uint32_t worker, const WorkloadOptions& options)
      : worker_(worker),
        options_(options),
        pool_(options.gpu_blocks + 1, 1, true),  // a "token" of the pool is a block of the trace
        timing_(1, 1) {
    pool_.set_recording(true);
  }

  void arrive(const Request& request, double time) {
    Operation find{.time_ms = time, .worker = worker_};
    for (const std::uint64_t id : request.blocks) {
      find.prompt.push_back(local(static_cast<mock::TokenId>(id)));
    }
    operations_.push_back(std::move(find));
    run_until(time);
    waiting_.push({&request, time});
    admit(time);
  }

  std::vector<Operation> finish() {
    run_until(std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      operations_[i].order = static_cast<std::uint32_t>(i);
    }
    std::ranges::sort(operations_, {}, [](const Operation& operation) {
      return std::pair(operation.time_ms, operation.order);
    });
    return std::move(operations_);
  }

 private:
  struct Waiting {
    const Request* request;
    double time;
  };
  struct Running {
    std::vector<mock::TokenId> tokens;  // prompt and generated blocks
    std::vector<std::uint64_t> hashes;
    std::vector<mock::BlockId> blocks;
    std::size_t stored = 0;
    std::size_t prompt = 0;
    double per_block_ms = 0;
    double end_ms = 0;
  };
  struct Due {
    double time;
    std::size_t running;
    bool operator>(const Due& other) const { return time > other.time; }
  };

  kv::LocalHash local(mock::TokenId id) {
    const auto [at, added] = locals_.try_emplace(id, 0);
    if (added) {
      const std::vector<std::uint32_t> tokens(options_.block_size, id);
      at->second = kv::local_hash(tokens, kv::kBaseSeed);
    }
    return at->second;
  }

  void admit(double now) {
    while (!waiting_.empty()) {
      const Request& request = *waiting_.front().request;
      Running running;
      running.prompt = request.blocks.size();
      for (const std::uint64_t id : request.blocks) {
        running.tokens.push_back(static_cast<mock::TokenId>(id));
      }
      for (std::uint32_t i = 0; i < request.output_length / options_.block_size; ++i) {
        running.tokens.push_back(next_generated_--);
      }
      mock::extend_block_hashes(running.hashes, running.tokens, 1, {});
      auto cached = pool_.find_prefix(std::span(running.hashes).first(running.prompt));
      pool_.acquire(cached);
      running.blocks = cached;
      const std::size_t missing = running.tokens.size() - cached.size();
      if (!pool_.allocate(missing, running.blocks)) {
        pool_.release(cached);
        if (running.tokens.size() > pool_.usable()) {
          waiting_.pop();  // never fits
          continue;
        }
        return;
      }
      waiting_.pop();
      take_events(now);
      running.stored = cached.size();
      const double prefill =
          milliseconds(timing_.prefill((running.prompt - cached.size()) * options_.block_size));
      const double per_token = milliseconds(timing_.decode(pool_.used(), pool_.usable()));
      running.per_block_ms = per_token * options_.block_size;
      running.end_ms = now + prefill + per_token * request.output_length;
      due_.push({now + prefill, running_.size()});
      running_.push_back(std::move(running));
    }
  }

  void run_until(double time) {
    while (!due_.empty() && due_.top().time <= time) {
      const Due due = due_.top();
      due_.pop();
      Running& running = running_[due.running];
      if (running.stored < running.tokens.size()) {
        const std::size_t last = std::max(running.prompt, running.stored + 1);
        pool_.store(running.blocks, running.hashes, running.tokens, running.stored, last, {});
        running.stored = last;
        take_events(due.time);
        due_.push({last < running.tokens.size() ? due.time + running.per_block_ms
                                                : std::max(running.end_ms, due.time),
                   due.running});
        continue;
      }
      if (due.time < running.end_ms) {
        due_.push({running.end_ms, due.running});
        continue;
      }
      pool_.release(running.blocks);
      running = {};
      admit(due.time);
    }
  }

  // Removals that come together are one event, as engines batch them.
  void take_events(double now) {
    for (const mock::KvEvent& event : pool_.take_events()) {
      if (const auto* stored = std::get_if<mock::BlocksStored>(&event)) {
        Operation operation{.time_ms = now,
                            .kind = Operation::Kind::Store,
                            .worker = worker_,
                            .parent = stored->parent};
        for (std::size_t i = 0; i < stored->hashes.size(); ++i) {
          operation.stored.push_back({stored->hashes[i], local(stored->tokens[i])});
        }
        operations_.push_back(std::move(operation));
      } else if (const auto* removed = std::get_if<mock::BlockRemoved>(&event)) {
        if (operations_.empty() || operations_.back().kind != Operation::Kind::Remove ||
            operations_.back().time_ms != now) {
          operations_.push_back(
              {.time_ms = now, .kind = Operation::Kind::Remove, .worker = worker_});
        }
        operations_.back().removed.push_back(removed->hash);
      }
    }
  }

  std::uint32_t worker_;
  const WorkloadOptions& options_;
  mock::BlockPool pool_;
  mock::TimingModel timing_;
  std::unordered_map<mock::TokenId, kv::LocalHash> locals_;
  std::queue<Waiting> waiting_;
  std::vector<Running> running_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<Operation> operations_;
  mock::TokenId next_generated_ = std::numeric_limits<mock::TokenId>::max();
};

// The same operations about other content.
std::vector<Operation> copy_of(const std::vector<Operation>& operations, std::uint64_t copy,
                               std::uint32_t workers) {
  std::vector<Operation> out = operations;
  const auto other = [copy](std::uint64_t& hash) { hash = kv::extend_hash(hash, copy); };
  for (Operation& operation : out) {
    operation.worker += static_cast<std::uint32_t>(copy) * workers;
    std::ranges::for_each(operation.prompt, other);
    std::ranges::for_each(operation.removed, other);
    for (kv::StoredBlock& block : operation.stored) {
      other(block.local);
      other(block.engine);
    }
    if (operation.parent) {
      other(*operation.parent);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Request>> read_trace(std::istream& in) {
  std::vector<Request> trace;
  for (std::string line; std::getline(in, line);) {
    auto value = json::parse(line);
    if (!value) {
      return std::unexpected(std::move(value.error()));
    }
    Request request;
    const auto number = [&](const char* name, double& out) {
      const json::Value* const found = value->find(name);
      return found && found->number(out);
    };
    double output = 0;
    const json::Value* const ids = value->find("hash_ids");
    if (!number("timestamp", request.time_ms) || !number("output_length", output) || !ids ||
        !ids->as_array()) {
      return fail(ErrorCode::InvalidRequest, "a line without timestamp, output_length or hash_ids");
    }
    request.output_length = static_cast<std::uint32_t>(output);
    for (const json::Value& id : *ids->as_array()) {
      request.blocks.push_back(id.as_int() ? static_cast<std::uint64_t>(*id.as_int()) : 0);
    }
    trace.push_back(std::move(request));
  }
  return trace;
}

std::vector<std::vector<Operation>> make_workload(const std::vector<Request>& trace,
                                                  const WorkloadOptions& options) {
  std::mt19937_64 random(options.seed);
  double end = 1;
  for (const Request& request : trace) {
    end = std::max(end, request.time_ms);
  }
  const double scale = options.simulation_ms / end;
  std::vector<std::vector<const Request*>> shares(options.workers);
  for (const Request& request : trace) {
    shares[std::uniform_int_distribution<std::size_t>(0, options.workers - 1)(random)].push_back(
        &request);
  }
  std::vector<std::vector<Operation>> workload;
  for (std::uint32_t worker = 0; worker < options.workers; ++worker) {
    Engine engine(worker, options);
    for (const Request* const request : shares[worker]) {
      engine.arrive(*request, request->time_ms * scale);
    }
    workload.push_back(engine.finish());
  }
  for (std::uint64_t copy = 1; copy < options.copies; ++copy) {
    for (std::size_t worker = 0; worker < options.workers; ++worker) {
      workload.push_back(
          copy_of(workload[worker], copy, static_cast<std::uint32_t>(options.workers)));
    }
  }
  return workload;
}

}  // namespace fairlead::kv_replay
