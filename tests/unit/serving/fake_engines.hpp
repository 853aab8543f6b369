#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/client.hpp"
#include "serving/response_encoder.hpp"
#include "serving/testing.hpp"

namespace fairlead::serving::testing {

/// What the fake engines saw; shared by all of them.
struct Engines {
  struct Stream {
    std::string authority;
    engine::GenerateRequest request;
    engine::TokenSink* sink = nullptr;  // null once the stream was destroyed
    bool silent = false;                ///< Answers as a whole.
    bool paused = false;
    bool finished = false;
    bool aborted = false;
  };
  std::deque<Stream> streams;
  std::map<std::string, Error> refuse;  // by authority: what open answers

  void tokens(std::size_t i, std::string_view text, const engine::Finish* finish = nullptr) {
    const auto ids = ids_of(text);
    streams[i].finished = finish != nullptr;
    streams[i].sink->on_tokens({ids, {}, finish});
  }
};

/// A running generation that tests feed.
class FakeStream final : public engine::EngineStream {
 public:
  explicit FakeStream(Engines::Stream& state) : state_(state) {}
  ~FakeStream() override {
    state_.sink = nullptr;
    state_.aborted = !state_.finished;
  }
  void pause() override { state_.paused = true; }
  void resume() override { state_.paused = false; }
  bool silent_until_done() const override { return state_.silent; }

 private:
  Engines::Stream& state_;
};

/// A client of one of them.
class FakeClient final : public engine::EngineClient {
 public:
  FakeClient(Engines& engines, std::string authority)
      : engines_(engines), authority_(std::move(authority)) {}
  net::Task<Result<engine::EngineInfo>> probe(net::TimePoint) override {
    co_return engine::EngineInfo();
  }
  net::Task<Result<>> check_health(net::TimePoint) override { co_return Result<>(); }
  Result<std::unique_ptr<engine::EngineStream>> open(const engine::GenerateRequest& request,
                                                     engine::TokenSink& sink) override {
    if (const auto refused = engines_.refuse.find(authority_); refused != engines_.refuse.end()) {
      return std::unexpected(refused->second);
    }
    auto& stream = engines_.streams.emplace_back();
    stream.authority = authority_;
    stream.request = request;
    stream.sink = &sink;
    return std::make_unique<FakeStream>(stream);
  }
  void set_addresses(std::vector<net::Address>) override {}

 private:
  Engines& engines_;
  std::string authority_;
};

/// An encoder that keeps what it is given.
class Recorder final : public ResponseEncoder {
 public:
  void on_prompt(std::uint32_t choice, const engine::PromptInfo&) override {
    before_prompt.push_back(text[choice]);
  }
  void on_delta(std::uint32_t choice, const Delta& delta, const Usage&) override {
    text[choice] += delta.text;
  }
  void on_end(std::uint32_t choice, const ChoiceEnd& end, const Usage& usage) override {
    ends[choice] = end.reason;
    usages[choice] = usage;
  }
  bool congested() const override { return full; }
  void drained() {
    full = false;
    on_resume_();
  }
  std::map<std::uint32_t, std::string> text;
  std::vector<std::string> before_prompt;  // text that was there whenever a prompt was told
  std::map<std::uint32_t, EndReason> ends;
  std::map<std::uint32_t, Usage> usages;
  bool full = false;
};

}  // namespace fairlead::serving::testing
