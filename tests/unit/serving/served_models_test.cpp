#include "serving/served_models.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/reactor.hpp"
#include "observe/metrics.hpp"
#include "routing/router.hpp"
#include "serving/cpu_pool.hpp"
#include "serving/service.hpp"

namespace fairlead::serving {
namespace {

std::shared_ptr<const fleet::Model> model_of(std::string name, std::vector<std::string> aliases,
                                             std::string base = {}) {
  auto model = std::make_shared<fleet::Model>();
  model->name = std::move(name);
  model->aliases = std::move(aliases);
  model->base_name = std::move(base);
  return model;
}

std::string name_of(const ServedModels& models, std::string_view name) {
  const ServedModel* const served = models.find(name);
  return served ? served->model->name : "none";
}

TEST(ServedModels, NamesComeBeforeAliasesAndTheFirstBeforeTheRest) {
  const ServedModels models({{model_of("a", {"b", "x"}), nullptr},
                             {model_of("b", {"x", "y"}), nullptr},
                             {model_of("a", {"z"}), nullptr}});
  EXPECT_FALSE(models.empty());
  EXPECT_EQ(name_of(models, "b"), "b");
  EXPECT_EQ(name_of(models, "x"), "a");
  EXPECT_EQ(name_of(models, "y"), "b");
  EXPECT_EQ(models.find("z")->model->aliases, std::vector<std::string>{"z"});
  EXPECT_NE(models.find("a"), models.find("z"));
  EXPECT_EQ(name_of(models, ""), "none");
  EXPECT_EQ(name_of(models, "A"), "none");
  EXPECT_TRUE(ServedModels().empty());
  EXPECT_EQ(name_of(ServedModels(), "a"), "none");
}

TEST(ServedModels, OneModelIsMeantWithoutItsName) {
  EXPECT_EQ(ServedModels().sole(), nullptr);
  const ServedModels one({{model_of("lora", {}, "a"), nullptr}, {model_of("a", {"x"}), nullptr}});
  ASSERT_NE(one.sole(), nullptr);
  EXPECT_EQ(one.sole()->model->name, "a");
  const ServedModels two({{model_of("a", {}), nullptr}, {model_of("b", {}), nullptr}});
  EXPECT_EQ(two.sole(), nullptr);
  const ServedModels three(
      {{model_of("a", {}), nullptr}, {model_of("b", {}), nullptr}, {model_of("c", {}), nullptr}});
  EXPECT_EQ(three.sole(), nullptr);
}

class ServiceModels : public ::testing::Test {
 protected:
  void serve(std::vector<std::shared_ptr<const fleet::Model>> models) {
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models = std::move(models);
    service_.set_fleet(std::move(fleet));
  }

  net::Reactor reactor_{"test"};
  routing::Router router_{routing::RouterMode::RoundRobin, 1};
  CpuPool pool_{{.threads = 1, .queue_jobs = 1}};
  observe::Registry registry_{"fairlead_frontend", 1};
  Service service_{
      reactor_, [](const engine::ClientOptions&) { return nullptr; }, router_, pool_, registry_,
      {},       [](std::uint64_t, std::uint64_t, fleet::Outcome) {}};
};

TEST_F(ServiceModels, RequestsShareOneHandleUntilTheFleetChanges) {
  EXPECT_TRUE(service_.served()->empty());
  serve({model_of("a", {}), model_of("b", {})});
  const auto first = service_.served();
  EXPECT_EQ(name_of(*first, "b"), "b");
  EXPECT_EQ(service_.served(), first);
  serve({model_of("a", {})});
  EXPECT_EQ(name_of(*service_.served(), "b"), "none");
  EXPECT_EQ(name_of(*first, "b"), "b") << "a request keeps what it began with";
}

TEST_F(ServiceModels, FilesReachEveryModelThatTheyServe) {
  serve({model_of("a", {}), model_of("lora", {}, "a"), model_of("b", {})});
  EXPECT_EQ(service_.served()->find("a")->assets, nullptr);
  const auto own = std::make_shared<const ModelContext>();
  const auto common = std::make_shared<const ModelContext>();
  service_.set_assets("a", own);
  EXPECT_EQ(service_.served()->find("a")->assets, own);
  EXPECT_EQ(service_.served()->find("lora")->assets, own);
  EXPECT_EQ(service_.served()->find("b")->assets, nullptr);
  service_.set_assets({}, common);
  EXPECT_EQ(service_.served()->find("b")->assets, common);
  service_.set_assets("a", nullptr);
  EXPECT_EQ(service_.served()->find("lora")->assets, common);
}

}  // namespace
}  // namespace fairlead::serving
