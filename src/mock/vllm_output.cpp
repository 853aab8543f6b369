#include "mock/vllm_output.hpp"

#include <algorithm>

#include "mock/vllm_handoff.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using ::vllm::CandidateTokenInfo;
using ::vllm::FinishInfo;

char* put_varint(char* out, std::uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80; value >>= 7) {
    ++size;
  }
  return size;
}

void add_candidates(CandidateTokenInfo& info, const ScoredToken& scored) {
  for (const Candidate& candidate : scored.candidates) {
    auto* entry = info.add_tokens();
    entry->set_id(candidate.id);
    entry->set_logprob(candidate.logprob);
    entry->set_rank(candidate.rank);
  }
}

}  // namespace

struct OutputEncoder::Messages {
  ::vllm::GenerateResponse response;
};

OutputEncoder::OutputEncoder(const GenerateSpec& spec, const MockOptions& options)
    : spec_(spec),
      options_(options),
      faults_(options.faults),
      vocabulary_(vocabulary_of(options)),
      with_token_(options.has(Capability::SampledCandidate)) {}

OutputEncoder::~OutputEncoder() = default;

std::string_view OutputEncoder::serialize() {
  if (gather_) {
    return {};
  }
  messages_->response.SerializeToString(&buffer_);
  messages_->response.Clear();
  return buffer_;
}

std::string_view OutputEncoder::prompt_info() {
  if (!messages_) {
    messages_ = std::make_unique<Messages>();
  }
  auto& info = *messages_->response.mutable_prompt_info();
  info.set_num_prompt_tokens(static_cast<std::uint32_t>(spec_.prompt.size()));
  if (spec_.prompt_token_ids) {
    info.mutable_token_ids()->Add(spec_.prompt.begin(), spec_.prompt.end());
  }
  const bool no_logprobs = faults_.null || faults_.empty;
  if (spec_.prompt_logprobs && !no_logprobs) {
    const std::size_t entries = spec_.prompt.size() - (faults_.shorter ? 1 : 0);
    for (std::size_t i = 0; i < entries; ++i) {
      const TokenId token = spec_.prompt[i];
      info.add_logprobs(i == 0 ? 0.0F : token_logprob(token));
      info.add_ranks(i == 0 ? 0 : 1);
      auto* candidates = info.add_candidate_tokens();
      if (i > 0) {
        add_candidates(*candidates,
                       score(token, spec_.prompt_candidates, vocabulary_, with_token_));
      }
    }
  }
  return serialize();
}

// GenerateResponse{2: SequenceOutput{2: text, 3: num_tokens 1, 4: token_ids}}
std::string_view OutputEncoder::simple(TokenId token, std::string_view text) {
  const std::size_t id_size = varint_size(token);
  const std::size_t size = 2 + (spec_.token_ids ? 2 + id_size : 0) +
                           (text.empty() ? 0 : 1 + varint_size(text.size()) + text.size());
  buffer_.resize(1 + varint_size(size) + size);
  char* out = buffer_.data();
  *out++ = 0x12;
  out = put_varint(out, size);
  if (!text.empty()) {
    *out++ = 0x12;
    out = put_varint(out, text.size());
    out = std::ranges::copy(text, out).out;
  }
  *out++ = 0x18;
  *out++ = 1;
  if (spec_.token_ids) {
    *out++ = 0x22;
    *out++ = static_cast<char>(id_size);
    put_varint(out, token);
  }
  return buffer_;
}

std::string_view OutputEncoder::step(std::optional<TokenId> token, std::string_view text,
                                     const FinishFacts* finish) {
  if (token && !finish && !spec_.logprobs && !gather_) {
    return simple(*token, text);
  }
  if (!messages_) {
    messages_ = std::make_unique<Messages>();
  }
  auto& output = *messages_->response.mutable_outputs();
  output.mutable_text()->append(text);
  if (token) {
    output.set_num_tokens(output.num_tokens() + 1);
    if (spec_.token_ids) {
      output.add_token_ids(*token);
    }
    const bool left_out = faults_.null || faults_.empty || (faults_.shorter && finish);
    if (spec_.logprobs && !left_out) {
      ScoredToken scored = score(*token, spec_.candidates, vocabulary_, with_token_);
      faults_.apply(scored, position_);
      output.add_logprobs(scored.token.logprob);
      output.add_ranks(scored.token.rank);
      add_candidates(*output.add_candidate_tokens(), scored);
    }
    ++position_;
  }
  if (finish) {
    FinishInfo& info = *output.mutable_finish_info();
    info.set_num_output_tokens(finish->output_tokens);
    info.set_finish_reason(static_cast<FinishInfo::FinishReason>(finish->reason));
    if (finish->eos_token) {
      info.set_eos_token_id(*finish->eos_token);
    } else if (finish->stop_token) {
      info.set_stop_token_id(*finish->stop_token);
    } else if (finish->stop_string) {
      info.set_stop_string(*finish->stop_string);
    }
    if (options_.has(Capability::NumCachedTokens)) {
      info.set_num_cached_tokens(finish->cached_tokens);
    }
    if (!finish->hand_off_engine.empty()) {
      fill_handoff(*info.mutable_kv_transfer_params(), finish->hand_off_engine, spec_.request_id,
                   finish->hand_off_blocks);
    }
  }
  return serialize();
}

std::string_view OutputEncoder::gathered() {
  gather_ = false;
  return serialize();
}

VllmAnswer::VllmAnswer(const GenerateSpec& spec, const MockOptions& options,
                       net::grpc::ServerCall& call, bool streaming)
    : encoder_(spec, options), call_(call), streaming_(streaming) {
  encoder_.set_gather(!streaming_);
}

void VllmAnswer::begin() {
  const std::string_view message = encoder_.prompt_info();
  if (streaming_) {
    call_.write(message);
  }
}

void VllmAnswer::step(std::optional<TokenId> token, std::string_view text) {
  const std::string_view message = encoder_.step(token, text, nullptr);
  if (streaming_) {
    call_.write(message);
  }
}

void VllmAnswer::finish(std::optional<TokenId> token, std::string_view text,
                        const FinishFacts& facts) {
  const std::string_view last = encoder_.step(token, text, &facts);
  call_.write(streaming_ ? last : encoder_.gathered());
  call_.finish({});
}

void VllmAnswer::break_off(const Fault& fault) {
  using net::grpc::Status;
  call_.finish(fault.kind == FaultKind::ErrorAfter
                   ? Status{static_cast<net::grpc::StatusCode>(grpc_status(fault)),
                            "injected fault", Status::Origin::Server}
                   : Status{});
}

}  // namespace fairlead::mock
