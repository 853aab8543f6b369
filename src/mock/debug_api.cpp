#include "mock/debug_api.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace fairlead::mock {
namespace {

using Block = BlockPool::CachedBlock;

// The bound on one answer of /debug/kv; what does not fit is left out and said so.
constexpr std::size_t kMaxChainTokens = 16 * 1024 * 1024;

struct Answer {
  int status = 200;
  std::string body;
};

void write_faults(json::Writer& json, const EngineState& state) {
  json.key("faults").begin_array();
  for (const Fault& fault : state.options.faults) {
    json.string(format_fault(fault));
  }
  json.end_array();
}

// The request's own fields beside `method` and `metadata`, which it has not.
std::string received_json(const EngineState& state, const ReceivedRequest& received) {
  std::string entry;
  json::Writer json(entry);
  json.begin_object().key("method").string(received.method).key("metadata").begin_object();
  for (const net::http::Header& header : received.headers) {
    std::string name;
    json::append_string(name, header.name);
    json.key(std::string_view(name).substr(1, name.size() - 2)).string(header.value);
  }
  json.end_object();
  const std::string message = state.render_message(received);
  if (message.starts_with('{') && message != "{}") {
    entry += ',';
    entry += std::string_view(message).substr(1);
  } else {
    entry += '}';
  }
  return entry;
}

void write_received(json::Writer& json, const EngineState& state) {
  json.key("last_requests").begin_array();
  for (const ReceivedRequest& received : state.received) {
    json.raw(received_json(state, received));
  }
  json.end_array();
}

void write_ranks(json::Writer& json, const EngineState& state) {
  json.key("ranks").begin_array();
  for (const auto& core : state.cores) {
    json.begin_object()
        .key("running")
        .unsigned_integer(core->scheduler().running())
        .key("waiting")
        .unsigned_integer(core->scheduler().waiting())
        .key("kv_blocks_used")
        .unsigned_integer(core->pool().used())
        .key("kv_blocks_total")
        .unsigned_integer(core->pool().usable())
        .key("preemptions_total")
        .unsigned_integer(core->scheduler().preemptions())
        .key("kv_event_batches")
        .unsigned_integer(core->publisher() ? core->publisher()->published() : 0)
        .end_object();
  }
  json.end_array();
}

Answer state_answer(const EngineState& state) {
  const MockCounts counts = state.counts();
  Answer answer;
  json::Writer json(answer.body);
  json.begin_object();
  json.key("running").unsigned_integer(counts.running);
  json.key("waiting").unsigned_integer(counts.waiting);
  json.key("kv_blocks_used").unsigned_integer(counts.kv_blocks_used);
  json.key("requests_total").unsigned_integer(counts.requests_total);
  json.key("rejected_total").unsigned_integer(counts.rejected_total);
  json.key("finished_total").unsigned_integer(counts.finished_total);
  json.key("aborted_total").unsigned_integer(counts.aborted_total);
  json.key("faulted_total").unsigned_integer(counts.faulted_total);
  json.key("abort_calls_total").unsigned_integer(state.abort_calls_total);
  json.key("requests_with_extra_args").unsigned_integer(state.requests_with_extra_args);
  json.key("waiting_for_peer").unsigned_integer(state.waiting_for_peer);
  json.key("held_for_transfer").unsigned_integer(state.held_for_transfer);
  json.key("room_reuse_total").unsigned_integer(state.room_reuse_total);
  json.key("kv_fetches_total").unsigned_integer(state.kv_fetches_total);
  json.key("kv_fetch_failures_total").unsigned_integer(state.kv_fetch_failures_total);
  json.key("kv_transfer_timeouts_total").unsigned_integer(state.kv_transfer_timeouts_total);
  json.key("last_aborted_ids").begin_array();
  for (const std::string& id : state.aborted_ids) {
    json.string(id);
  }
  json.end_array();
  json.key("instance_id").string(state.instance_id);
  json.key("role").string(role_name(state.options.role));
  write_ranks(json, state);
  write_faults(json, state);
  write_received(json, state);
  json.end_object();
  return answer;
}

Answer requests_answer(const EngineState& state) {
  Answer answer;
  json::Writer json(answer.body);
  json.begin_object().key("requests_with_extra_args");
  json.unsigned_integer(state.requests_with_extra_args).key("requests").begin_array();
  for (const RequestRecord& record : state.records) {
    const RenderedRecord rendered = state.render_record(record);
    json.begin_object().key("request_id").string(record.request_id);
    json.key("model").string(record.model).key("lora").string(record.lora);
    json.key("stream").boolean(record.stream);
    json.key("extra_args").raw(record.extra_args.empty() ? "null" : record.extra_args);
    json.key("sampling").raw(rendered.sampling).key("logprobs").raw(rendered.logprobs);
    json.key("refusal");
    record.refusal.empty() ? json.null() : json.string(record.refusal);
    json.end_object();
  }
  json.end_array().end_object();
  return answer;
}

// One chain per cached block that no cached block continues, from the beginning of its sequence.
void write_chains(json::Writer& json, const BlockPool& pool, std::size_t rank,
                  std::size_t& tokens_left, bool& truncated) {
  const std::vector<Block> blocks = pool.cached();
  std::unordered_map<std::uint64_t, const Block*> by_hash;
  std::unordered_set<std::uint64_t> parents;
  for (const Block& block : blocks) {
    by_hash[block.hash] = &block;
    if (block.parent) {
      parents.insert(*block.parent);
    }
  }
  for (const Block& leaf : blocks) {
    if (parents.contains(leaf.hash)) {
      continue;
    }
    std::vector<const Block*> chain;
    for (const Block* block = &leaf; block;) {
      chain.push_back(block);
      const auto next = block->parent ? by_hash.find(*block->parent) : by_hash.end();
      block = next == by_hash.end() ? nullptr : next->second;
    }
    std::ranges::reverse(chain);
    const std::size_t size = chain.size() * pool.block_size();
    if (size > tokens_left) {
      truncated = true;
      continue;
    }
    tokens_left -= size;
    json.begin_object().key("rank").unsigned_integer(rank);
    json.key("complete").boolean(!chain.front()->parent);
    json.key("cache_salt").string(chain.front()->key.salt);
    json.key("lora_name").string(chain.front()->key.lora);
    json.key("block_hashes").begin_array();
    for (const Block* block : chain) {
      json.unsigned_integer(block->hash);
    }
    json.end_array().key("token_ids").begin_array();
    for (const Block* block : chain) {
      for (const TokenId token : block->tokens) {
        json.unsigned_integer(token);
      }
    }
    json.end_array().end_object();
  }
}

Answer kv_answer(const EngineState& state) {
  Answer answer;
  std::size_t tokens_left = kMaxChainTokens;
  bool truncated = false;
  json::Writer json(answer.body);
  json.begin_object().key("block_size").unsigned_integer(state.options.block_size);
  json.key("chains").begin_array();
  for (std::size_t rank = 0; rank < state.cores.size(); ++rank) {
    write_chains(json, state.cores[rank]->pool(), rank, tokens_left, truncated);
  }
  json.end_array().key("truncated").boolean(truncated).end_object();
  return answer;
}

Answer fault_answer(const EngineState& state) {
  Answer answer;
  json::Writer json(answer.body);
  json.begin_object();
  write_faults(json, state);
  json.end_object();
  return answer;
}

Result<std::vector<Fault>> read_faults(std::string_view body) {
  const auto document = json::parse(body);
  if (!document) {
    return std::unexpected(document.error());
  }
  const json::Value* list = document->find("faults");
  const json::Array* items = list ? list->as_array() : nullptr;
  if (!items) {
    return fail(ErrorCode::InvalidRequest, R"(expected {"faults": ["KIND:ARG", ...]})");
  }
  std::vector<Fault> faults;
  for (const json::Value& item : *items) {
    const std::string* text = item.as_string();
    auto fault = parse_fault(text ? *text : std::string());
    if (!fault) {
      return std::unexpected(fault.error());
    }
    faults.push_back(*fault);
  }
  return faults;
}

Answer set_faults(const EngineState& state, const DebugActions& actions, std::string_view body) {
  auto faults = read_faults(body);
  if (!faults) {
    return {400, debug_error(faults.error().message)};
  }
  if (const auto set = actions.set_faults(std::move(*faults)); !set) {
    return {500, debug_error(set.error().message)};
  }
  return fault_answer(state);
}

Answer answer(const EngineState& state, const DebugActions& actions,
              const net::http::Request& request) {
  const std::string route = request.method + " " + request.path;
  if (route == "GET /debug/state") {
    return state_answer(state);
  }
  if (route == "GET /debug/requests") {
    return requests_answer(state);
  }
  if (route == "GET /debug/kv") {
    return kv_answer(state);
  }
  if (route == "GET /debug/fault") {
    return fault_answer(state);
  }
  if (route == "POST /debug/fault") {
    return set_faults(state, actions, request.body);
  }
  if (route == "POST /debug/reset_prefix_cache") {
    return {200, actions.reset_prefix_cache() ? R"({"success":true})" : R"({"success":false})"};
  }
  return {404, debug_error("no such route")};
}

net::Task<> serve(const EngineState& state, const DebugActions& actions,
                  net::http::Exchange& exchange) {
  const Answer reply = answer(state, actions, exchange.request());
  exchange.respond(reply.status, {{"content-type", "application/json"}}, reply.body);
  co_return;
}

}  // namespace

std::string debug_error(std::string_view message) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("error").string(message).end_object();
  return body;
}

net::http::Handler make_debug_handler(const EngineState& state, DebugActions actions) {
  return [&state, actions = std::move(actions)](net::http::Exchange& exchange) {
    return serve(state, actions, exchange);
  };
}

}  // namespace fairlead::mock
