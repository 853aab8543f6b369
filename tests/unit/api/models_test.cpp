#include "api/openai/models.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/serving_fixture.hpp"

namespace fairlead::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A fleet whose sets are made by hand: what `/v1/models` says of namespaces and adapters.
class ModelsTest : public ServingFixture {
 protected:
  static std::shared_ptr<fleet::WorkerSet> set_of(fleet::Role role, std::size_t healthy,
                                                  std::vector<std::vector<fleet::Role>> needs = {},
                                                  const std::vector<std::string>& adapters = {}) {
    auto set = std::make_shared<fleet::WorkerSet>();
    set->name_space = "ns";
    set->role = role;
    set->needs = std::move(needs);
    for (std::size_t slot = 0; slot < 2; ++slot) {
      auto worker = std::make_shared<fleet::Worker>();
      worker->id = slot + 1;
      worker->slot = slot;
      worker->healthy = slot < healthy;
      worker->adapters = adapters;
      set->workers.push_back(std::move(worker));
    }
    set->slot_count = 2;
    return set;
  }
  void serve(std::vector<std::shared_ptr<const fleet::WorkerSet>> sets) {
    auto base = std::make_shared<fleet::Model>();
    base->name = "base";
    base->model_id = "org/base";
    base->context_length = 512;
    base->created = 1;
    base->worker_sets = std::move(sets);
    auto adapter = std::make_shared<fleet::Model>(*base);
    adapter->name = "m-sql";
    adapter->base_name = "base";
    adapter->lora_name = "sql";
    adapter->source_path = "/loras/sql";
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models = {base, adapter};
    service_.set_fleet(std::move(fleet));
    service_.set_assets("base", demo_assets());
  }
};

TEST_F(ModelsTest, AnAdapterHasAParentAndItsBasesFiles) {
  serve({set_of(fleet::Role::Aggregated, 2, {}, {"sql"})});
  const std::string body = get("/v1/models").body;
  EXPECT_THAT(body, HasSubstr(R"("id":"base","object":"model","created":1,"owned_by":"fairlead",)"
                              R"("root":"org/base","parent":null)"));
  EXPECT_THAT(body, HasSubstr(R"("id":"m-sql","object":"model","created":1,"owned_by":"fairlead",)"
                              R"("root":"/loras/sql","parent":"base")"));
  const FakeExchange& refused =
      post("/v1/completions", R"({"model":"m-sql","prompt":[5],"max_tokens":3})");
  EXPECT_EQ(refused.status, 400) << "the workers do not say that they know adapters";
  EXPECT_THAT(refused.body, HasSubstr("capability_unsupported"));
}

TEST_F(ModelsTest, AnAdapterNobodyHasIsNotListed) {
  serve({set_of(fleet::Role::Aggregated, 2)});
  EXPECT_THAT(get("/v1/models").body, Not(HasSubstr("m-sql")));
  EXPECT_EQ(get("/v1/models/m-sql/ready").status, 503);
}

TEST_F(ModelsTest, HealthNamesEveryWorkerOnce) {
  serve({set_of(fleet::Role::Aggregated, 2, {}, {"sql"})});
  const std::string body = get("/health").body;
  EXPECT_EQ(body.find(R"("worker_id":1)"), body.rfind(R"("worker_id":1)"));
}

TEST_F(ModelsTest, AModelThatMissesARoleIsNotListedAndSaysWhy) {
  serve({set_of(fleet::Role::Decode, 1, {{fleet::Role::Prefill}})});
  EXPECT_EQ(get("/v1/models").body, R"({"object":"list","data":[]})");
  const FakeExchange& ready = get("/v1/models/base/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body,
              HasSubstr(R"("namespaces":{"ns":{"ready":false,"reason":"missing worker types: )"
                        R"(prefill","worker_types":{"decode":{"workers":1,"needs":[["prefill"]]}},)"
                        R"("present":["decode"],"missing_worker_types":["prefill"]}})"));
  serve({set_of(fleet::Role::Decode, 1, {{fleet::Role::Prefill}}),
         set_of(fleet::Role::Prefill, 1, {{fleet::Role::Decode}})});
  EXPECT_THAT(get("/v1/models").body, HasSubstr(R"("id":"base")"));
  EXPECT_EQ(get("/v1/models/base/ready").status, 200);
}

}  // namespace
}  // namespace fairlead::api
