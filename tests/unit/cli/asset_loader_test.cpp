#include "cli/asset_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fairlead::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ModelSpec {
  std::string name;
  std::string model_id;
  std::string source_path = {};
  std::string sampling = {};
  std::string base = {};
};

fleet::Fleet fleet_of(const std::vector<ModelSpec>& specs) {
  fleet::Fleet fleet;
  for (const ModelSpec& spec : specs) {
    auto model = std::make_shared<fleet::Model>();
    model->name = spec.name;
    model->model_id = spec.model_id;
    model->source_path = spec.source_path;
    model->base_name = spec.base;
    if (!spec.sampling.empty()) {
      model->default_sampling = *json::parse(spec.sampling);
    }
    fleet.models.push_back(std::move(model));
  }
  return fleet;
}

class AssetLoaderTest : public ::testing::Test {
 protected:
  void TearDown() override {
    reactor.post([this] { loader.reset(); });
    reactor.run_turn(milliseconds(0));
  }

  void start(const std::string& common = {}, std::map<std::string, std::string> named = {}) {
    loader = std::make_unique<AssetLoader>(
        reactor, ModelPaths{.common = common, .named = std::move(named)},
        [this](const AssetSource& source, const std::stop_token&) { return load(source); },
        [this](const std::string& model, const std::shared_ptr<const chat::ModelAssets>& assets) {
          given[model] = assets ? assets->folder : "none";
          shared[model] = assets;
        });
  }
  void update(const std::vector<ModelSpec>& specs) {
    reactor.post([this, fleet = fleet_of(specs)] { loader->update(fleet); });
  }
  /// Runs the reactor until these folders have been given to these models.
  bool wait(const std::map<std::string, std::string>& wanted) {
    const net::TimePoint deadline = net::Clock::now() + std::chrono::seconds(20);
    while (given != wanted && net::Clock::now() < deadline) {
      reactor.run_turn(milliseconds(20));
    }
    EXPECT_EQ(given, wanted);
    return given == wanted;
  }
  std::vector<std::string> loads() {
    const std::lock_guard lock(mutex_);
    return loads_;
  }

  net::Reactor reactor;
  std::unique_ptr<AssetLoader> loader;
  std::map<std::string, std::string> given;
  std::map<std::string, std::shared_ptr<const chat::ModelAssets>> shared;
  std::function<void(const AssetSource&)> before_load = [](const AssetSource&) {};

 private:
  Result<chat::ModelAssets> load(const AssetSource& source) {
    before_load(source);
    const std::lock_guard lock(mutex_);
    loads_.push_back(source.path + source.sampling);
    if (source.path.starts_with("bad")) {
      return fail(ErrorCode::InvalidRequest, "no such folder");
    }
    chat::ModelAssets assets;
    assets.folder = source.path + source.sampling;
    return assets;
  }

  std::mutex mutex_;
  std::vector<std::string> loads_;
};

TEST_F(AssetLoaderTest, CardsWinOverTheFlagWhichWinsOverTheEngine) {
  start();
  update({{"a", "/engine/a"}, {"b", "/engine/b", "/card/b"}});
  ASSERT_TRUE(wait({{"a", "/engine/a"}, {"b", "/card/b"}}));
  given.clear();
  start("/flag");
  update({{"a", "/engine/a"}, {"b", "/engine/b", "/card/b"}});
  ASSERT_TRUE(wait({{"a", "/flag"}, {"b", "/card/b"}}));
  given.clear();
  start("/flag", {{"b", "/named/b"}});
  update({{"a", "/engine/a"}, {"b", "/engine/b", "/card/b"}});
  ASSERT_TRUE(wait({{"a", "/flag"}, {"b", "/named/b"}}));
}

TEST_F(AssetLoaderTest, SharedFilesAreLoadedOnceAndKnownOnesNotAgain) {
  start();
  update({{"a", "/m"}, {"b", "/m"}, {"fr", "", "", "", "a"}});
  ASSERT_TRUE(wait({{"a", "/m"}, {"b", "/m"}}));
  EXPECT_EQ(shared["a"], shared["b"]);
  update({{"a", "/m"}, {"c", "/m"}});
  ASSERT_TRUE(wait({{"a", "/m"}, {"b", "none"}, {"c", "/m"}}));
  EXPECT_THAT(loads(), ElementsAre("/m"));
}

TEST_F(AssetLoaderTest, SamplingDefaultsArePartOfWhatIsLoaded) {
  start();
  update({{"a", "/m", "", R"({"top_k":1})"}});
  ASSERT_TRUE(wait({{"a", R"(/m{"top_k":1})"}}));
  update({{"a", "/m"}});
  ASSERT_TRUE(wait({{"a", "/m"}}));
}

TEST_F(AssetLoaderTest, TheAssetsOfTheFlagAreNotLoadedAgain) {
  start("/flag");
  chat::ModelAssets assets;
  assets.folder = "loaded before";
  loader->set_default(std::make_shared<const chat::ModelAssets>(assets));
  update({{"a", "/engine/a"}, {"b", "/engine/b", "", R"({"top_k":1})"}});
  ASSERT_TRUE(wait({{"a", "loaded before"}, {"b", R"(/flag{"top_k":1})"}}));
}

TEST_F(AssetLoaderTest, AFailureConcernsItsModelOnly) {
  start();
  ::testing::internal::CaptureStderr();
  update({{"a", "bad"}, {"b", "/m"}});
  ASSERT_TRUE(wait({{"b", "/m"}}));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("the files of model `a`, to be found at `bad`, cannot be loaded: no such "
                "folder; name their folder, or the hub's name for them, with --model-path a=DIR"));
  update({{"a", "bad"}, {"b", "/m"}, {"c", "/n"}});
  ASSERT_TRUE(wait({{"b", "/m"}, {"c", "/n"}}));
  EXPECT_THAT(loads(), ElementsAre("bad", "/m", "/n")) << "not tried again at every change";
  update({{"a", "/found"}, {"b", "/m"}, {"c", "/n"}});
  ASSERT_TRUE(wait({{"a", "/found"}, {"b", "/m"}, {"c", "/n"}}));
}

TEST_F(AssetLoaderTest, WhatIsNoLongerWantedWhenItArrivesIsDropped) {
  std::latch loading(1);
  std::latch changed(1);
  std::atomic<bool> first = true;
  before_load = [&](const AssetSource&) {
    if (first.exchange(false)) {
      loading.count_down();
      changed.wait();
    }
  };
  start();
  update({{"a", "/old"}});
  reactor.run_turn(milliseconds(0));
  loading.wait();
  update({{"a", "/new"}});
  reactor.run_turn(milliseconds(0));
  changed.count_down();
  ASSERT_TRUE(wait({{"a", "/new"}}));
  EXPECT_THAT(loads(), ElementsAre("/old", "/new"));
}

}  // namespace
}  // namespace fairlead::cli
