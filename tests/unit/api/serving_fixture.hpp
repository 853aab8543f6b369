#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/options.hpp"
#include "api/router.hpp"
#include "api/testing.hpp"
#include "chat/model_files.hpp"
#include "net/task_group.hpp"
#include "net/testing.hpp"
#include "observe/metrics.hpp"
#include "routing/router.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/service.hpp"

namespace fairlead::api {

/// The model of `fairlead demo`, loaded once.
inline std::shared_ptr<const chat::ModelAssets> demo_assets() {
  static const auto assets = [] {
    auto loaded = chat::load_model_assets({.path = FAIRLEAD_SOURCE_DIR "/share/demo"});
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      return std::shared_ptr<const chat::ModelAssets>();
    }
    return std::make_shared<const chat::ModelAssets>(std::move(*loaded));
  }();
  return assets;
}

/// A model without workers.
inline std::shared_ptr<fleet::Model> bare_model(std::string name) {
  auto model = std::make_shared<fleet::Model>();
  model->name = std::move(name);
  return model;
}

/// A model with one healthy worker.
inline std::shared_ptr<fleet::Model> make_model(std::string name, std::uint32_t context = 0) {
  auto worker = std::make_shared<fleet::Worker>();
  worker->id = 1;
  worker->healthy = true;
  worker->endpoint.url = "http://engine:1";
  worker->endpoint.authority = "engine:1";
  worker->capabilities = {engine::Capability::LogprobTokenIds, engine::Capability::PromptLogprobs};
  auto set = std::make_shared<fleet::WorkerSet>();
  set->id = 1;
  set->slot_count = 1;
  set->workers.push_back(std::move(worker));
  auto model = bare_model(std::move(name));
  model->model_id = "org/demo";
  model->context_length = context;
  model->created = 1700000000;
  model->worker_sets.push_back(std::move(set));
  return model;
}

/// The models of one request.
inline std::shared_ptr<const serving::ServedModels> served_models(
    std::vector<serving::ServedModel> models) {
  return std::make_shared<const serving::ServedModels>(std::move(models));
}

/// What the fake engine was asked and how it is made to answer.
struct FakeEngine {
  struct Stream {
    engine::GenerateRequest request;
    engine::TokenSink* sink = nullptr;  // null once the stream was destroyed
    bool paused = false;
  };
  std::deque<Stream> streams;

  void tokens(std::size_t i, const std::vector<engine::TokenId>& ids) {
    streams[i].sink->on_tokens({ids, {}, nullptr});
  }
  void finish(std::size_t i, engine::FinishReason reason = engine::FinishReason::Length) {
    engine::Finish finish;
    finish.reason = reason;
    streams[i].sink->on_tokens({{}, {}, &finish});
  }
};

class FakeEngineStream final : public engine::EngineStream {
 public:
  explicit FakeEngineStream(FakeEngine::Stream& state) : state_(state) {}
  ~FakeEngineStream() override { state_.sink = nullptr; }
  void pause() override { state_.paused = true; }
  void resume() override { state_.paused = false; }

 private:
  FakeEngine::Stream& state_;
};

class FakeEngineClient final : public engine::EngineClient {
 public:
  explicit FakeEngineClient(FakeEngine& engine) : engine_(engine) {}
  net::Task<Result<engine::EngineInfo>> probe(net::TimePoint) override {
    co_return engine::EngineInfo();
  }
  net::Task<Result<>> check_health(net::TimePoint) override { co_return Result<>(); }
  Result<std::unique_ptr<engine::EngineStream>> open(const engine::GenerateRequest& request,
                                                     engine::TokenSink& sink) override {
    auto& stream = engine_.streams.emplace_back();
    stream.request = request;
    stream.sink = &sink;
    return std::make_unique<FakeEngineStream>(stream);
  }
  void set_addresses(std::vector<net::Address>) override {}

 private:
  FakeEngine& engine_;
};

/// An ApiRouter over a service with one model `demo` (alias `alias`) and one fake engine.
class ServingFixture : public ::testing::Test {
 protected:
  explicit ServingFixture(ApiOptions options = {},
                          routing::RouterMode mode = routing::RouterMode::RoundRobin)
      : router_(mode, 1),
        pool_({.threads = 1, .queue_jobs = 4}),
        registry_("fairlead_frontend", 1),
        service_(
            reactor_,
            [this](const engine::ClientOptions&) {
              return std::make_unique<FakeEngineClient>(engine_);
            },
            router_, pool_, registry_, {.inline_prompt_bytes = 4096},
            [](std::uint64_t, std::uint64_t, fleet::Outcome) {}),
        api_(service_, registry_, options, 7) {}

 public:
  ~ServingFixture() override {
    in_turn([this] { tasks_.cancel(); });
  }

 protected:
  void serve_demo(std::uint32_t context = 0) {
    auto model = make_model("demo", context);
    model->aliases = {"alias", "a/b"};
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models.push_back(std::move(model));
    service_.set_fleet(std::move(fleet));
    service_.set_assets({}, demo_assets());
  }

  static net::http::Request request(std::string method, std::string path, std::string body = {},
                                    net::http::HeaderList headers = {}) {
    net::http::Request out;
    out.method = std::move(method);
    out.path = std::move(path);
    out.headers = std::move(headers);
    if (out.method == "POST" && !out.headers.find("content-type")) {
      out.headers.add("content-type", "application/json");
    }
    out.body.reserve(body.size() + net::http::kBodyPadding);
    out.body = std::move(body);
    return out;
  }

  /// Hands the request to the router; it runs until it waits for the engine.
  FakeExchange& start(net::http::Request what) {
    FakeExchange& exchange = exchanges_.emplace_back(std::move(what));
    in_turn([&] { tasks_.spawn(handler_(exchange)); });
    return exchange;
  }
  FakeExchange& get(std::string path) { return start(request("GET", std::move(path))); }
  FakeExchange& post(std::string path, std::string body) {
    return start(request("POST", std::move(path), std::move(body)));
  }

  /// Runs `job` inside a turn, then the turns that follow from it.
  void in_turn(std::function<void()> job) {
    reactor_.post(std::move(job));
    for (int i = 0; i < 3; ++i) {
      reactor_.run_turn(std::chrono::milliseconds(0));
    }
  }

  net::Reactor reactor_;
  FakeEngine engine_;
  routing::Router router_;
  serving::CpuPool pool_;
  observe::Registry registry_;
  serving::Service service_;
  ApiRouter api_;
  net::http::Handler handler_ = api_.handler();
  std::deque<FakeExchange> exchanges_;
  net::TaskGroup tasks_;
};

}  // namespace fairlead::api
