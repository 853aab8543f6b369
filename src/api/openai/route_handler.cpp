#include "api/openai/route_handler.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "api/error_response.hpp"
#include "api/kv_mode.hpp"
#include "base/json.hpp"
#include "routing/kv_query.hpp"
#include "serving/worker_choice.hpp"

namespace fairlead::api::openai {
namespace {

/// What is said of all candidates of one prompt.
struct Context {
  const serving::Service& service;
  const routing::KvSetView* view;  // null: nothing is known of the caches
  std::size_t most_candidates;
};

void write_target(json::Writer& writer, const Context& context, routing::TargetRef target) {
  writer.key("worker_id").unsigned_integer(target.worker_id);
  writer.key("dp_rank").unsigned_integer(target.rank).key("endpoint");
  const auto worker = context.service.worker(target.worker_id);
  worker ? writer.string(worker->endpoint.url) : writer.null();
}

void write_overlap(json::Writer& writer, const routing::CachedBlocks& cached) {
  writer.key("overlap_blocks").begin_object();
  writer.key("device").unsigned_integer(cached.device);
  writer.key("host").unsigned_integer(cached.host);
  writer.key("disk").unsigned_integer(cached.disk).end_object();
}

void write_terms(json::Writer& writer, const routing::CostTerms& terms) {
  writer.key("terms").begin_object();
  writer.key("effective_blocks").number(terms.effective_blocks);
  writer.key("raw_prefill").number(terms.raw_prefill).key("credit").number(terms.credit);
  writer.key("adjusted_prefill").number(terms.adjusted_prefill);
  writer.key("decode").number(terms.decode).key("requests").number(terms.requests);
  writer.key("recompute").number(terms.recompute).end_object();
}

void write_candidate(json::Writer& writer, const Context& context,
                     const routing::CandidateCost& candidate) {
  writer.begin_object();
  write_target(writer, context, candidate.target);
  const auto id = context.view ? context.view->find(candidate.target) : std::nullopt;
  writer.key("kv_view");
  id ? writer.string(routing::target_state_name(context.view->states[*id])) : writer.null();
  writer.key("overloaded").boolean(candidate.overloaded);
  writer.key("cost").number(candidate.terms.cost);
  write_overlap(writer, candidate.cached);
  write_terms(writer, candidate.terms);
  writer.key("load").begin_object();
  writer.key("prefill_tokens").integer(candidate.load.prefill_tokens);
  writer.key("active_blocks").integer(candidate.load.active_blocks);
  writer.key("requests").unsigned_integer(candidate.load.requests);
  writer.key("active_prefix_blocks").unsigned_integer(candidate.load.active_prefix);
  writer.end_object().end_object();
}

void write_candidates(json::Writer& writer, const Context& context,
                      std::vector<routing::CandidateCost>& candidates) {
  const auto order = [](const routing::CandidateCost& one) {
    return std::tuple(one.terms.cost, one.target.worker_id, one.target.rank);
  };
  writer.key("candidates_total").unsigned_integer(candidates.size());
  const std::size_t listed = std::min(candidates.size(), context.most_candidates);
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(listed);
  std::ranges::partial_sort(candidates, end, {}, order);
  candidates.erase(end, candidates.end());
  writer.key("candidates").begin_array();
  for (const routing::CandidateCost& candidate : candidates) {
    write_candidate(writer, context, candidate);
  }
  writer.end_array();
}

void write_choice(json::Writer& writer, const Context& context, std::size_t prompt_tokens,
                  serving::WorkerPreview& preview) {
  const routing::KvDecision& decision = preview.decision;
  write_target(writer, context, decision.target);
  writer.key("reason").string(routing::reason_name(decision.reason));
  writer.key("prompt_tokens").unsigned_integer(prompt_tokens).key("block_size");
  const std::uint32_t block_size = context.view ? context.view->caches->params.block_size : 0;
  block_size > 0 ? writer.unsigned_integer(block_size) : writer.null();
  writer.key("total_blocks");
  block_size > 0 ? writer.unsigned_integer(decision.total_blocks) : writer.null();
  write_overlap(writer, decision.cached);
  writer.key("confirmed_blocks").unsigned_integer(decision.confirmed_blocks);
  writer.key("cached_tokens");
  writer.unsigned_integer(
      block_size == 0
          ? 0
          : routing::expected_cached_tokens(decision.cached.total(),
                                            static_cast<std::uint32_t>(prompt_tokens), block_size));
  writer.key("prefill_tokens").unsigned_integer(decision.prefill_tokens);
  writer.key("cost").number(decision.terms.cost);
  write_candidates(writer, context, preview.candidates);
}

}  // namespace

Prepared prepare_either(const PrepareInput& input, const std::string& body, JsonReader& reader,
                        const std::stop_token& stop) {
  const Result<observe::Endpoint> endpoint = find_endpoint(reader, body);
  if (!endpoint) {
    Prepared refused;
    refused.spec = std::unexpected(endpoint.error());
    return refused;
  }
  PrepareInput either = input;
  either.endpoint = *endpoint;
  return prepare(either, body, reader, stop);
}

int RouteHandler::refuse(net::http::Exchange& exchange, const Error& error) const {
  respond_error(exchange, error, options_);
  return error_status(error, options_);
}

net::Task<int> RouteHandler::serve(net::http::Exchange& exchange) {
  net::http::Request& request = exchange.request();
  if (const auto error = check_kv_mode(service_, "there is nothing to explain")) {
    co_return refuse(exchange, *error);
  }
  if (const auto error = refusal(service_, request)) {
    co_return refuse(exchange, *error);
  }
  // The endpoint is found in the body.
  constexpr auto kAny = observe::Endpoint::ChatCompletions;
  Prepared prepared;
  if (preparation_.is_small(request)) {
    prepared = preparation_.at_once(request, kAny, prepare_either);
  } else {
    Result<Prepared> done = co_await preparation_.on_pool(request, kAny, prepare_either);
    if (!done) {
      co_return refuse(exchange, done.error());
    }
    prepared = std::move(*done);
  }
  if (!prepared.spec) {
    co_return refuse(exchange, prepared.spec.error());
  }
  const Result<std::string> body = explain(std::move(*prepared.spec));
  if (!body) {
    co_return refuse(exchange, body.error());
  }
  respond_json(exchange, 200, *body);
  co_return 200;
}

Result<std::string> RouteHandler::explain(serving::GenerationSpec spec) const {
  std::string out;
  json::Writer writer(out);
  writer.begin_object().key("object").string("route");
  writer.key("model").string(spec.model->name).key("choices").begin_array();
  const std::size_t most_candidates = kMaxCandidates / spec.prompts.size();
  for (std::size_t i = 0; i < spec.prompts.size(); ++i) {
    engine::GenerateRequest& request = spec.request;
    request.prompt = std::move(spec.prompts[i]);
    const auto set = serving::choose_set(service_, spec.model->name, spec.worker_id, spec.session,
                                         spec.constraints.required_taints, request);
    if (!set) {
      return std::unexpected(set.error());
    }
    Result<serving::WorkerPreview> preview =
        serving::preview_worker(service_, *set,
                                {.wanted = {.worker_id = spec.worker_id,
                                            .excluded = {},
                                            .adapter = request.lora_name,
                                            .required_taints = spec.constraints.required_taints,
                                            .rank = request.data_parallel_rank},
                                 .session = spec.session,
                                 .expected_output = spec.expected_output,
                                 .preferred_taints = spec.constraints.preferred_taints},
                                request);
    if (!preview) {
      return std::unexpected(std::move(preview.error()));
    }
    writer.begin_object().key("index").unsigned_integer(i);
    write_choice(writer, {service_, preview->kv_view.get(), most_candidates}, request.prompt.size(),
                 *preview);
    writer.end_object();
  }
  writer.end_array().end_object();
  return out;
}

}  // namespace fairlead::api::openai
