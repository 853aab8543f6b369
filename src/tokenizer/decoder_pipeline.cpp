#include "tokenizer/decoder_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "tokenizer/decoder_stages.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

// Puts the stages of one step in front of the last one built. Steps are built from the last to the
// first.
class Build {
 public:
  // `single`: the step gets one token at most, so no second one need be waited for.
  Build(std::vector<StagePointer>& stages, bool single) : stages_(stages), single_(single) {}

  void operator()(const step::Replace& replace) { add(replace.literal, replace.content); }
  void operator()(const step::Cleanup& /*unused*/) {
    const std::vector<step::Replace>& list = cleanup_replacements();
    std::for_each(list.rbegin(), list.rend(), *this);
  }
  void operator()(const step::Join& join) {
    if (!single_) {
      add(join);
    }
  }
  void operator()(const step::DropRepeated& drop) {
    if (!single_) {
      add(drop);
    }
  }
  void operator()(const step::WordEnd& end) {
    if (!single_) {
      add(end);
    } else if (end.suffix) {
      add(*end.suffix, "");
    }
  }
  template <class Step>
  void operator()(const Step& any) {
    add(any);
  }

 private:
  void add(const Literal& literal, std::string_view content) {
    stages_.push_back(replace_stage(literal, content, *stages_.back()));
  }
  template <class Step>
  void add(const Step& any) {
    stages_.push_back(make_stage(any, *stages_.back()));
  }

  std::vector<StagePointer>& stages_;
  bool single_;
};

bool makes_one_token(const DecoderStep& any) {
  return std::holds_alternative<step::Fuse>(any) || std::holds_alternative<step::ByteLevel>(any);
}

}  // namespace

class DecoderPipeline::Output final : public TokenReceiver {
 public:
  void text(std::string_view piece) override { out->append(piece); }
  void end_token() override {}
  void finish() override {}

  std::string* out = nullptr;
};

DecoderPipeline::DecoderPipeline(std::span<const DecoderStep> steps) {
  auto output = std::make_unique<Output>();
  output_ = output.get();
  stages_.push_back(std::move(output));
  const auto one =
      static_cast<std::size_t>(std::ranges::find_if(steps, makes_one_token) - steps.begin());
  for (std::size_t i = steps.size(); i-- > 0;) {
    std::visit(Build(stages_, i > one), steps[i]);
  }
}

DecoderPipeline::~DecoderPipeline() = default;

void DecoderPipeline::push(std::string_view token, std::string& out) {
  output_->out = &out;
  if (!token.empty()) {
    stages_.back()->text(token);
  }
  stages_.back()->end_token();
}

void DecoderPipeline::finish(std::string& out) {
  output_->out = &out;
  stages_.back()->finish();
}

}  // namespace fairlead::tokenizer
