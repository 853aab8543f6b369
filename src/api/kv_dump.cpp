#include "api/kv_dump.hpp"

#include <algorithm>
#include <memory>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error_response.hpp"
#include "api/kv_mode.hpp"
#include "kv/dump.hpp"
#include "net/event.hpp"
#include "serving/cpu_pool.hpp"

namespace fairlead::api {
namespace {

// Blocks that one job of the pool writes: 150 to 250 kB of text.
constexpr std::size_t kDumpedPerPiece = 4096;

/// Raised while something runs.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;
  ~Flag() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

struct KvDumpHandler::Target {
  const fleet::Model& model;
  const fleet::WorkerSet& set;
  std::shared_ptr<const routing::KvSetView> view;
  kv::TargetId id;
};

// The answer's body, written as fast as the client takes it.
class KvDumpHandler::Stream {
 public:
  Stream(net::http::Exchange& exchange, std::size_t high_mark)
      : exchange_(exchange), high_mark_(high_mark) {
    exchange_.set_on_drain([this] { drained_.set(); });
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { exchange_.set_on_drain({}); }

  net::Task<> write(std::string_view text) {
    drained_.reset();
    exchange_.out() += text;
    exchange_.commit();
    if (exchange_.unsent() > high_mark_) {
      co_await drained_.wait();
    }
  }

 private:
  net::http::Exchange& exchange_;
  const std::size_t high_mark_;
  net::Event drained_;
};

int KvDumpHandler::refuse(net::http::Exchange& exchange, const Error& error) const {
  respond_error(exchange, error, options_);
  return error_status(error, options_);
}

net::Task<int> KvDumpHandler::serve(net::http::Exchange& exchange) {
  if (const auto error = check_kv_mode(service_, "there is nothing to dump")) {
    co_return refuse(exchange, *error);
  }
  if (service_.draining()) {
    co_return refuse(exchange, {ErrorCode::Draining, "The server is shutting down", {}});
  }
  net::http::HeaderList headers{{"content-type", "application/x-ndjson"}};
  add_request_id(exchange, headers);
  if (exchange.request().method == "HEAD") {
    exchange.respond(200, headers, {});
    co_return 200;
  }
  if (running_) {
    co_return refuse(exchange, {ErrorCode::Overloaded, "another dump is being written", {}});
  }
  const Flag running(running_);
  const std::shared_ptr<const fleet::Fleet> fleet = service_.fleet();
  exchange.start(200, headers);
  Stream stream(exchange, options_.high_mark_bytes);
  std::string line;
  kv::append_dump_start(line);
  co_await stream.write(line);
  std::size_t targets = 0;
  std::size_t blocks = 0;
  for (const auto& model : fleet->models) {
    if (!model->base_name.empty()) {
      continue;  // its workers are its base's
    }
    for (const auto& set : model->worker_sets) {
      const auto view = service_.kv_view(set->id);
      for (const kv::TargetId id : view ? view->by_ref : std::vector<kv::TargetId>()) {
        const Result<std::size_t> dumped =
            co_await dump(stream, {.model = *model, .set = *set, .view = view, .id = id});
        if (!dumped) {
          line.clear();
          append_error(line, dumped.error());
          co_await stream.write(line + '\n');
          exchange.finish();
          co_return 200;
        }
        ++targets;
        blocks += *dumped;
      }
    }
  }
  line.clear();
  kv::append_dump_end(line, targets, blocks);
  co_await stream.write(line);
  exchange.finish();
  co_return 200;
}

// Dumps one target; the result is the number of its blocks.
net::Task<Result<std::size_t>> KvDumpHandler::dump(Stream& stream, const Target& target) {
  const routing::TargetPlace& place = target.view->places[target.id];
  const auto worker = service_.worker(place.worker_id);
  const kv::HashParams& params = target.view->caches->params;
  const auto held = std::make_shared<kv::DumpedTarget>(kv::DumpedTarget{
      .model = target.model.name,
      .name_space = target.set.name_space,
      .role = std::string(fleet::role_name(target.set.role)),
      .block_size = params.block_size,
      .bigram = params.bigram,
      .worker_id = place.worker_id,
      .rank = place.rank,
      .endpoint = worker ? worker->endpoint.url : std::string(),
      .instance_id = worker ? worker->info.instance_id : std::string(),
      .state = std::string(routing::target_state_name(target.view->states[target.id])),
      .checkpoint = {},
      .blocks = {}});
  const std::size_t bytes = target.view->caches->index.blocks(target.id) * sizeof(kv::HeldBlock);
  Result<std::string> piece = co_await service_.pool().run(
      bytes, [held, view = target.view, id = target.id](const std::stop_token&) {
        const auto read = [&] { view->caches->index.snapshot(id, held->blocks); };
        if (const auto& giver = view->checkpoints[id]) {
          held->checkpoint = giver->checkpoint(read);
        }
        if (!held->checkpoint) {
          read();
        }
        std::string text;
        kv::append_dump_target(text, *held);
        return text;
      });
  if (!piece) {
    co_return std::unexpected(piece.error());
  }
  co_await stream.write(*piece);
  for (std::size_t from = 0; from < held->blocks.size(); from += kDumpedPerPiece) {
    const std::size_t count = std::min(held->blocks.size() - from, kDumpedPerPiece);
    piece = co_await service_.pool().run(
        count * sizeof(kv::HeldBlock), [held, from, count](const std::stop_token&) {
          std::string text;
          kv::append_dump_blocks(text, std::span(held->blocks).subspan(from, count));
          return text;
        });
    if (!piece) {
      co_return std::unexpected(piece.error());
    }
    co_await stream.write(*piece);
  }
  co_return held->blocks.size();
}

}  // namespace fairlead::api
