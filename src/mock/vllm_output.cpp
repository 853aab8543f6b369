#include "mock/vllm_output.hpp"

#include <algorithm>
#include <bit>

#include "mock/vllm_handoff.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using ::vllm::CandidateTokenInfo;
using ::vllm::FinishInfo;

// Fields that consist of bytes.
constexpr char kPromptInfoTag = 1 << 3 | 2;
constexpr char kPromptLogprobsTag = 3 << 3 | 2;
constexpr char kPromptRanksTag = 4 << 3 | 2;
constexpr char kPromptCandidatesTag = 5 << 3 | 2;

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

void append_varint(std::string& out, std::uint64_t value) {
  char bytes[10];
  out.append(bytes, put_varint(bytes, value));
}

// The head of a field that consists of `length` bytes.
void append_length(std::string& out, char tag, std::uint64_t length) {
  out.push_back(tag);
  append_varint(out, length);
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
  CandidateTokenInfo candidates;
};

OutputEncoder::OutputEncoder(const GenerateSpec& spec, const MockOptions& options)
    : spec_(spec),
      options_(options),
      faults_(options.faults),
      vocabulary_(vocabulary_of(options)),
      with_token_(options.has(Capability::SampledCandidate)),
      prompt_scores_(spec, faults_, vocabulary_, with_token_) {}

OutputEncoder::~OutputEncoder() = default;

std::string_view OutputEncoder::serialize() {
  if (gather_) {
    return {};
  }
  messages_->response.SerializeToString(&buffer_);
  messages_->response.Clear();
  return buffer_;
}

// The parts are kept as they will be sent: as messages of protobuf they would take several times
// the space, and be serialized all at once in the end.
void OutputEncoder::add_position(const ScoredToken* scored) {
  const auto logprob = std::bit_cast<std::uint32_t>(scored ? scored->token.logprob : 0.0F);
  for (int shift = 0; shift < 32; shift += 8) {
    prompt_logprobs_.push_back(static_cast<char>(logprob >> shift & 0xFF));
  }
  append_varint(prompt_ranks_, scored ? scored->token.rank : 0);
  CandidateTokenInfo& candidates = messages_->candidates;
  candidates.Clear();
  if (scored) {
    add_candidates(candidates, *scored);
  }
  append_length(prompt_candidates_, kPromptCandidatesTag, candidates.ByteSizeLong());
  candidates.AppendToString(&prompt_candidates_);
}

bool OutputEncoder::prepare() {
  if (!messages_ && !prompt_scores_.complete()) {
    messages_ = std::make_unique<Messages>();
  }
  return prompt_scores_.next([this](const ScoredToken* scored) { add_position(scored); });
}

// GenerateResponse{1: PromptInfo{1: num_prompt_tokens, 2: token_ids, 3: logprobs, 4: ranks,
// 5: candidate_tokens}}, the arrays of numbers packed
std::string_view OutputEncoder::prompt_info() {
  ::vllm::PromptInfo info;
  info.set_num_prompt_tokens(static_cast<std::uint32_t>(spec_.prompt.size()));
  if (spec_.prompt_token_ids) {
    info.mutable_token_ids()->Add(spec_.prompt.begin(), spec_.prompt.end());
  }
  const std::string head = info.SerializeAsString();
  std::size_t size = head.size();
  const bool scored = prompt_scores_.complete() && !prompt_logprobs_.empty();
  if (scored) {
    size += 1 + varint_size(prompt_logprobs_.size()) + prompt_logprobs_.size();
    size += 1 + varint_size(prompt_ranks_.size()) + prompt_ranks_.size();
    size += prompt_candidates_.size();
  }
  prompt_message_.clear();
  prompt_message_.reserve(1 + varint_size(size) + size);
  append_length(prompt_message_, kPromptInfoTag, size);
  prompt_message_ += head;
  if (scored) {
    append_length(prompt_message_, kPromptLogprobsTag, prompt_logprobs_.size());
    prompt_message_ += prompt_logprobs_;
    append_length(prompt_message_, kPromptRanksTag, prompt_ranks_.size());
    prompt_message_ += prompt_ranks_;
    prompt_message_ += prompt_candidates_;
  }
  for (std::string* part : {&prompt_logprobs_, &prompt_ranks_, &prompt_candidates_}) {
    std::string().swap(*part);
  }
  return prompt_message_;
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
      fill_handoff(*info.mutable_kv_transfer_params(),
                   {finish->hand_off_engine, spec_.request_id, finish->hand_off_blocks,
                    finish->hand_off_host, finish->hand_off_port});
    }
  }
  return serialize();
}

std::string_view OutputEncoder::gathered() {
  gather_ = false;
  const std::string_view outputs = serialize();
  return prompt_message_.append(outputs);
}

VllmAnswer::VllmAnswer(const GenerateSpec& spec, const MockOptions& options,
                       net::grpc::ServerCall& call, bool streaming)
    : encoder_(spec, options), call_(call), streaming_(streaming) {
  encoder_.set_gather(!streaming_);
}

bool VllmAnswer::prepare() { return encoder_.prepare(); }

void VllmAnswer::begin(std::uint32_t) {
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
