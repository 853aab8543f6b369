#include "loadgen/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/json.hpp"
#include "loadgen/connection.hpp"
#include "loadgen/process.hpp"
#include "loadgen/requests.hpp"
#include "net/event.hpp"
#include "net/socket.hpp"
#include "net/task_group.hpp"

namespace fairlead::loadgen {
namespace {

using net::Clock;
using net::TimePoint;

double percentile(std::vector<float>& values, double fraction) {
  if (values.empty()) {
    return 0;
  }
  const auto index = static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

class Run {
 public:
  explicit Run(const Options& options) : options_(options), requests_(options) {}

  std::string report() {
    net::Reactor reactor("loadgen");
    net::TaskGroup tasks;
    reactor.post([&] { tasks.spawn(main(reactor)); });
    reactor.run();
    connections_.clear();  // before their reactor
    return to_json();
  }

 private:
  net::Task<> main(net::Reactor& reactor) {
    const auto address = net::Address::parse(options_.host, options_.port);
    if (!address) {
      failure_ = address.error().message;
      reactor.stop();
      co_return;
    }
    address_ = *address;
    deadline_ = Clock::now() + std::chrono::duration_cast<net::Duration>(
                                   std::chrono::duration<double>(options_.deadline_seconds));
    co_await learn_reference();
    if (failure_.empty()) {
      co_await (options_.rate > 0 ? open_loop() : closed_loop());
    }
    if (finished_ < options_.requests && failure_.empty()) {
      failure_ = fmt::format("deadline: {} of {} requests ended", finished_, options_.requests);
    }
    reactor.stop();
  }

  // What a correct answer reads: one folded answer of the same request.
  net::Task<> learn_reference() {
    net::Event done;
    auto stream = co_await dialer_.connect(address_, deadline_);
    if (!stream) {
      failure_ = stream.error().message;
      co_return;
    }
    Connection connection(std::move(*stream), false, [&](Connection&, const Outcome& outcome) {
      failure_ = outcome.problem;
      reference_ = outcome.text;
      done.set();
    });
    connection.send(requests_.next(false));
    if (!co_await done.wait_until(deadline_)) {
      failure_ = "no answer to the first request";
    } else if (failure_.empty() && reference_.empty()) {
      failure_ = "the first answer is empty";
    }
  }

  net::Task<Result<std::unique_ptr<Connection>>> connect() {
    auto stream = co_await dialer_.connect(address_, deadline_);
    if (!stream) {
      co_return std::unexpected(stream.error());
    }
    co_return std::make_unique<Connection>(
        std::move(*stream), options_.stream,
        [this](Connection& c, Outcome outcome) { ended(c, std::move(outcome)); });
  }

  net::Task<> closed_loop() {
    for (int i = 0; i < options_.connections; ++i) {
      auto connection = co_await connect();
      if (!connection) {
        failure_ = connection.error().message;
        co_return;
      }
      connections_.push_back(std::move(*connection));
    }
    if (options_.warmup == 0) {
      start_measuring();
    }
    for (const auto& connection : connections_) {
      next(*connection);
    }
    co_await all_done_.wait_until(deadline_);
    stop_measuring();
  }

  net::Task<> open_loop() {
    start_measuring();
    const TimePoint start = Clock::now();
    for (int i = 0; i < options_.requests; ++i) {
      const TimePoint due = start + std::chrono::duration_cast<net::Duration>(
                                        std::chrono::duration<double>(i / options_.rate));
      while (Clock::now() < due) {
        co_await net::Sleep(due - Clock::now());
      }
      if (idle_.empty()) {
        auto connection = co_await connect();
        if (!connection) {
          count_problem(connection.error().message);
          ++finished_;
          continue;
        }
        connections_.push_back(std::move(*connection));
        idle_.push_back(connections_.back().get());
      }
      Connection* const connection = idle_.back();
      idle_.pop_back();
      ++sent_;
      connection->send(requests_.next(options_.stream));
    }
    if (finished_ < options_.requests) {
      co_await all_done_.wait_until(deadline_);
    }
    stop_measuring();
  }

  void next(Connection& connection) {
    if (sent_ < options_.warmup + options_.requests) {
      ++sent_;
      connection.send(requests_.next(options_.stream));
    }
  }

  void ended(Connection& connection, Outcome outcome) {
    if (options_.rate > 0) {
      record(outcome);
      if (connection.usable()) {
        idle_.push_back(&connection);
      }
      return;
    }
    ++seen_;
    if (seen_ == options_.warmup) {
      start_measuring();
    } else if (seen_ > options_.warmup) {
      record(outcome);
    } else if (!outcome.ok || outcome.text != reference_) {
      count_problem(outcome.ok ? "wrong text" : outcome.problem);
    }
    if (connection.usable()) {
      next(connection);
    }
  }

  void record(Outcome& outcome) {
    ++finished_;
    if (outcome.ok && outcome.text != reference_) {
      outcome.ok = false;
      outcome.problem = "wrong text";
    }
    if (!outcome.ok) {
      count_problem(outcome.problem);
    } else {
      const auto ms = [](net::Duration d) {
        return std::chrono::duration<float, std::milli>(d).count();
      };
      ttft_ms_.push_back(ms(outcome.first - outcome.sent));
      total_ms_.push_back(ms(outcome.done - outcome.sent));
      gap_ms_.insert(gap_ms_.end(), outcome.gaps_ms.begin(), outcome.gaps_ms.end());
      chunks_ += outcome.chunks;
    }
    if (finished_ == options_.requests) {
      all_done_.set();
    }
  }

  void count_problem(const std::string& text) { ++problems_[text.substr(0, 200)]; }

  void start_measuring() {
    started_ = Clock::now();
    cpu_before_ = cpu_seconds(options_.pid);
  }

  void stop_measuring() {
    ended_ = Clock::now();
    cpu_after_ = cpu_seconds(options_.pid);
  }

  std::string to_json() {
    std::string out;
    json::Writer writer(out);
    writer.begin_object();
    if (!failure_.empty()) {
      writer.key("failed").string(failure_);
    }
    const double seconds = std::chrono::duration<double>(ended_ - started_).count();
    const double cpu_us = (cpu_after_ - cpu_before_) * 1e6;
    const auto good = static_cast<double>(ttft_ms_.size());
    const double tokens = good * options_.max_tokens;
    std::int64_t errors = 0;
    writer.key("problems").begin_object();
    for (const auto& [text, count] : problems_) {
      std::string key;
      json::append_string(key, text);
      writer.key(key.substr(1, key.size() - 2)).integer(count);
      errors += count;
    }
    writer.end_object();
    writer.key("requests").integer(static_cast<std::int64_t>(good)).key("errors").integer(errors);
    writer.key("seconds").number(seconds);
    writer.key("requests_per_second").number(seconds > 0 ? good / seconds : 0);
    writer.key("tokens_per_second").number(seconds > 0 ? tokens / seconds : 0);
    writer.key("cpu_us_per_request").number(good > 0 ? cpu_us / good : 0);
    writer.key("cpu_us_per_token").number(tokens > 0 ? cpu_us / tokens : 0);
    writer.key("chunks_per_request").number(good > 0 ? static_cast<double>(chunks_) / good : 0);
    writer.key("ttft_ms_p50").number(percentile(ttft_ms_, 0.5));
    writer.key("ttft_ms_p99").number(percentile(ttft_ms_, 0.99));
    writer.key("total_ms_p50").number(percentile(total_ms_, 0.5));
    writer.key("total_ms_p99").number(percentile(total_ms_, 0.99));
    writer.key("inter_token_ms_p50").number(percentile(gap_ms_, 0.5));
    writer.key("inter_token_ms_p99").number(percentile(gap_ms_, 0.99));
    writer.key("inter_token_ms_p999").number(percentile(gap_ms_, 0.999));
    writer.key("rss_kib").integer(options_.pid ? memory_kib(options_.pid, "VmRSS:") : 0);
    writer.key("peak_rss_kib").integer(options_.pid ? memory_kib(options_.pid, "VmHWM:") : 0);
    writer.end_object();
    return out;
  }

  const Options& options_;
  Requests requests_;
  net::TcpDialer dialer_;
  net::Address address_;
  TimePoint deadline_;
  std::string reference_;
  std::string failure_;
  net::Event all_done_;
  int sent_ = 0;
  int seen_ = 0;
  int finished_ = 0;
  std::int64_t chunks_ = 0;
  double cpu_before_ = 0;
  double cpu_after_ = 0;
  TimePoint started_;
  TimePoint ended_;
  std::vector<float> ttft_ms_;
  std::vector<float> total_ms_;
  std::vector<float> gap_ms_;
  std::map<std::string, std::int64_t> problems_;
  std::vector<Connection*> idle_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace

std::string run_load(const Options& options) { return Run(options).report(); }

}  // namespace fairlead::loadgen
