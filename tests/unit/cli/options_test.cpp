#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/config_file.hpp"
#include "cli/docs.hpp"
#include "cli/mock_engine_command.hpp"
#include "cli/serve_options.hpp"
#include "cli/settings.hpp"
#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kTables{"serve", "demo"};

struct Inputs {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables = {};
  std::string file = {};
};

Result<Settings> resolve(std::span<const OptionSpec> table, const Inputs& inputs) {
  const Result<RawArguments> raw = parse_arguments(table, inputs.arguments);
  if (!raw) {
    return std::unexpected(raw.error());
  }
  const Result<std::vector<ConfigEntry>> entries = parse_config(inputs.file, "serve", kTables);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = inputs.variables.find(name);
    return found == inputs.variables.end() ? std::nullopt : std::optional(found->second);
  };
  return Settings::resolve(table, *raw, environment, *entries, "f.toml");
}

Result<Settings> serve(const Inputs& inputs) { return resolve(serve_table(), inputs); }

std::string error_of(const Result<Settings>& settings) {
  EXPECT_FALSE(settings.has_value());
  return settings ? std::string() : settings.error().message;
}

TEST(Options, FlagOverOwnVariableOverDynVariableOverFileOverDefault) {
  Inputs inputs;
  EXPECT_EQ(serve(inputs)->integer("http-port"), 8000);
  inputs.file = "http_port = 1\n";
  EXPECT_EQ(serve(inputs)->integer("http-port"), 1);
  EXPECT_EQ(serve(inputs)->origin("http-port"), "f.toml:1: http-port");
  inputs.variables["DYN_HTTP_PORT"] = "2";
  EXPECT_EQ(serve(inputs)->integer("http-port"), 2);
  inputs.variables["FAIRLEAD_HTTP_PORT"] = "3";
  EXPECT_EQ(serve(inputs)->integer("http-port"), 3);
  EXPECT_EQ(serve(inputs)->origin("http-port"), "FAIRLEAD_HTTP_PORT");
  inputs.variables["FAIRLEAD_HTTP_PORT"] = "";
  EXPECT_EQ(serve(inputs)->integer("http-port"), 2) << "an empty variable is not set";
  inputs.variables["FAIRLEAD_HTTP_PORT"] = "3";
  inputs.arguments = {"--http-port", "4"};
  EXPECT_EQ(serve(inputs)->integer("http-port"), 4);
  inputs.arguments = {"--http-port=5", "--http-port=6"};
  EXPECT_EQ(serve(inputs)->integer("http-port"), 6) << "the last one wins";
  EXPECT_EQ(serve(inputs)->source("http-port"), Source::Flag);
}

TEST(Options, TheCommandsTableWinsOverWhatStandsAboveIt) {
  const auto settings = serve({.arguments = {}, .file = "http-port = 1\n[serve]\nhttp-port = 2"});
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_EQ(settings->integer("http-port"), 2);
}

TEST(Options, SwitchesHaveANegativeForm) {
  EXPECT_FALSE(serve({})->flag("direct"));
  EXPECT_TRUE(serve({.arguments = {"--direct"}})->flag("direct"));
  EXPECT_FALSE(serve({.arguments = {"--no-direct"}, .variables = {{"FAIRLEAD_DIRECT", "1"}}})
                   ->flag("direct"));
  EXPECT_TRUE(serve({.arguments = {"--direct=true"}})->flag("direct"));
  for (const std::string yes : {"1", "true", "YES", "On"}) {
    EXPECT_TRUE(serve({.arguments = {}, .variables = {{"FAIRLEAD_DIRECT", yes}}})->flag("direct"));
  }
  for (const std::string no : {"0", "false", "NO", "off", ""}) {
    EXPECT_FALSE(serve({.arguments = {}, .variables = {{"FAIRLEAD_DIRECT", no}}})->flag("direct"));
  }
  EXPECT_THAT(error_of(serve({.arguments = {}, .variables = {{"FAIRLEAD_DIRECT", "maybe"}}})),
              HasSubstr("FAIRLEAD_DIRECT: `maybe` is neither true nor false"));
}

TEST(Options, ListsComeRepeatedSplitAndInArrays) {
  EXPECT_THAT(serve({.arguments = {"--engine-url", "a", "b", "--engine-url", "c,d", "--direct"}})
                  ->list("engine-url"),
              ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(
      serve({.arguments = {}, .variables = {{"DYN_ENGINE_URL", "a, b,,c"}}})->list("engine-url"),
      ElementsAre("a", "b", "c"));
  EXPECT_THAT(serve({.arguments = {}, .file = "engine-url = [\n 'a', # one\n \"b\",\n]"})
                  ->list("engine-url"),
              ElementsAre("a", "b"));
}

TEST(Options, MistakesNameTheOptionAndItsOrigin) {
  EXPECT_EQ(error_of(serve({.arguments = {"--engne-url", "x"}})),
            "unknown option `--engne-url`; did you mean `--engine-url`?");
  EXPECT_EQ(error_of(serve({.arguments = {"--zzzzzzzzzzzz"}})),
            "unknown option `--zzzzzzzzzzzz`; see --help");
  EXPECT_THAT(error_of(serve({.arguments = {"--http-port"}})), HasSubstr("--http-port"));
  EXPECT_EQ(error_of(serve({.arguments = {"--http-port", "70000"}})),
            "--http-port: `70000` is not a whole number from 0 to 65535");
  EXPECT_EQ(error_of(serve({.arguments = {}, .variables = {{"DYN_HTTP_PORT", "x"}}})),
            "DYN_HTTP_PORT: `x` is not a whole number from 0 to 65535");
  EXPECT_EQ(error_of(serve({.arguments = {}, .file = "\nhttp-prt = 1"})),
            "f.toml:2: unknown key `http-prt`; did you mean `http-port`?");
  EXPECT_EQ(error_of(serve({.arguments = {}, .file = "http-port = [1, 2]"})),
            "f.toml:1: http-port: one value is expected, not a list");
  EXPECT_EQ(error_of(serve({.arguments = {}, .file = "http-port = 1\n\nhttp_port = 2"})),
            "f.toml:3: `http-port` is set twice, first in line 1");
  EXPECT_EQ(error_of(serve({.arguments = {}, .file = "[serve]\nconfig = 'x'"})),
            "f.toml:2: `config` names this file and cannot stand in it");
  EXPECT_THAT(error_of(serve({.arguments = {"--log-level", "loud"}})),
              HasSubstr("`loud` is unknown; choose one of trace, debug"));
  for (const std::string flag : {"--tls-cert-path", "--tls-key-path", "--api-key"}) {
    EXPECT_THAT(error_of(serve({.arguments = {flag, "x"}})), HasSubstr("not supported yet"));
  }
}

TEST(Options, TheDynNamesOfOtherFrontendsWork) {
  const auto settings = serve({.arguments = {},
                               .variables = {{"DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS", "5"},
                                             {"DYN_HTTP_OVERLOAD_STATUS_CODE", "529"},
                                             {"DYN_ENABLE_FORCE_INCLUDE_USAGE", "true"},
                                             {"DYN_DISABLE_FRONTEND_NVEXT", "1"},
                                             {"DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS", "yes"},
                                             {"DYN_HTTP_BODY_LIMIT_MB", "2"},
                                             {"DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", "9"},
                                             {"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS", "8"},
                                             {"DYN_DIRECT", "1"},
                                             {"DYN_ENGINE_URL", "h:1"}}});
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  const auto options = serve_options(*settings);
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->api.keep_alive, std::chrono::milliseconds(5));
  EXPECT_EQ(options->api.overload_status, 529);
  EXPECT_TRUE(options->api.force_include_usage && options->api.disable_nvext);
  EXPECT_TRUE(options->api.ignore_unsupported_fields);
  EXPECT_EQ(options->limits.body_bytes, 2U * 1024 * 1024);
  ASSERT_TRUE(options->limits.bodies);
  EXPECT_TRUE(options->limits.bodies->has_room(std::size_t{1} << 30));
  EXPECT_FALSE(options->limits.bodies->has_room((std::size_t{1} << 30) + 1));
  EXPECT_EQ(options->limits.body_min_rate, 1024U);
  EXPECT_EQ(options->limits.read_ahead_bytes, 256U * 1024);
  EXPECT_EQ(options->drain_timeout, std::chrono::seconds(9));
  EXPECT_EQ(options->service.stream_timeout, std::chrono::seconds(8));
  ASSERT_EQ(options->engines.size(), 1U);
  EXPECT_EQ(options->engines.front().endpoint.url, "http://h:1");
}

TEST(ServeOptions, PrefillEnginesAreNamedBesideTheOthers) {
  const auto of = [](std::vector<std::string> arguments) {
    const auto options = serve_options(*serve({.arguments = std::move(arguments)}));
    EXPECT_TRUE(options.has_value());
    return *options;
  };
  const ServeOptions plain =
      of({"--direct", "--engine-url", "h:1", "--prefill-engine-url", "h:2,vllm-http=h:3"});
  ASSERT_EQ(plain.prefill_engines.size(), 2U);
  EXPECT_EQ(plain.prefill_engines[0].endpoint.url, "http://h:2");
  EXPECT_EQ(plain.prefill_engines[1].backend, engine::Backend::VllmHttp);
  EXPECT_FALSE(plain.fleet.decode_alone);
  EXPECT_TRUE(of({"--direct", "--engine-url", "h:1", "--prefill-engine-url", "h:2",
                  "--allow-aggregated-fallback"})
                  .fleet.decode_alone);
}

TEST(ServeOptions, CircuitsOpenAfterFiveFailuresForTenSecondsUnlessToldOtherwise) {
  const auto of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--direct", "--engine-url", "h:1"});
    const auto options = serve_options(*serve({.arguments = std::move(arguments)}));
    EXPECT_TRUE(options.has_value());
    return options->fleet.circuit;
  };
  EXPECT_EQ(of({}).failures, 5U);
  EXPECT_EQ(of({}).open, std::chrono::seconds(10));
  EXPECT_EQ(of({}).longest_open, std::chrono::seconds(120));
  EXPECT_EQ(of({"--circuit-breaker-failures", "0"}).failures, 0U);
  EXPECT_EQ(of({"--circuit-breaker-open-secs", "0.5"}).open, std::chrono::milliseconds(500));
  EXPECT_EQ(of({"--circuit-breaker-open-secs", "300"}).longest_open, std::chrono::seconds(300));
}

TEST(ServeOptions, EachWrongCombinationHasOneClearLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows{
      {{},
       "no engines: name them with --direct --engine-url URL, or a folder of model cards with "
       "--discovery-backend file --discovery-dir DIR"},
      {{"--direct"}, "--direct needs at least one --engine-url"},
      {{"--engine-url", "h:1"}, "--engine-url: engine URLs need --direct"},
      {{"--prefill-engine-url", "h:1"}, "--prefill-engine-url: engine URLs need --direct"},
      {{"--direct", "--prefill-engine-url", "h:1"},
       "--prefill-engine-url: prefill engines alone cannot answer; name at least one --engine-url"},
      {{"--direct", "--engine-url", "h:1", "--prefill-engine-url", "http://h:1/"},
       "--prefill-engine-url: http://h:1 is also an --engine-url; an engine has one role"},
      {{"--direct", "--engine-url", "h:1", "--direct-backend", "trt"},
       "--direct-backend: backend `trt` is unknown; choose `vllm`, `vllm-http` or `sglang`"},
      {{"--direct", "--engine-url", "h:1", "--direct-backend", "openai-http"},
       "--direct-backend: backend `openai-http` is not supported yet; choose `vllm`, `vllm-http` "
       "or `sglang`"},
      {{"--direct", "--engine-url", "openai-http=h:1"},
       "--engine-url: backend `openai-http` is not supported yet; choose `vllm`, `vllm-http` or "
       "`sglang`"},
      {{"--direct", "--engine-url", "trt=h:1"},
       "--engine-url: backend `trt` is unknown; choose `vllm`, `vllm-http` or `sglang`"},
      {{"--direct", "--engine-url", "vllm=h:1,vllm-http=h:1"},
       "--engine-url: http://h:1 is named twice"},
      {{"--direct", "--engine-url", "h:1,h:1"}, "--engine-url: http://h:1 is named twice"},
      {{"--direct", "--engine-url", "h:1", "--discovery-backend", "etcd"},
       "--discovery-backend: discovery backend `etcd` is not supported yet; choose `file` with "
       "--discovery-dir DIR, or name the engines with --direct --engine-url URL"},
      {{"--discovery-backend", "zookeeper"},
       "--discovery-backend: discovery backend `zookeeper` is unknown; choose `file` with "
       "--discovery-dir DIR, or name the engines with --direct --engine-url URL"},
      {{"--discovery-backend", "file"},
       "--discovery-backend: which folder are the cards in? name it with --discovery-dir DIR"},
      {{"--discovery-backend", "file", "--discovery-dir", ""},
       "--discovery-backend: which folder are the cards in? name it with --discovery-dir DIR"},
      {{"--discovery-backend", "file", "--discovery-dir", "/dev/null"},
       "--discovery-dir: `/dev/null` is not a folder"},
      {{"--direct", "--engine-url", "h:1", "--discovery-dir", "/tmp"},
       "--discovery-dir: a folder of cards needs --discovery-backend file"},
      {{"--discovery-backend", "file", "--discovery-dir", "/tmp", "--engine-url", "h:1"},
       "--engine-url: engine URLs need --direct"},
      {{"--direct", "--engine-url", "h:1", "--model-name", " "}, "--model-name: the name is blank"},
      {{"--direct", "--engine-url", "h:1", "--default-sampling-params", "[1]"},
       "--default-sampling-params: not a JSON object"},
      {{"--direct", "--engine-url", "h:1", "--default-sampling-params", R"({"temprature":1})"},
       "--default-sampling-params: unknown key `temprature`; known are temperature, top_p, top_k, "
       "min_p, repetition_penalty, max_tokens, logprobs, prompt_logprobs, extra_args"},
      {{"--direct", "--engine-url", "h:1", "--default-sampling-params", R"({"extra_args":[1]})"},
       "--default-sampling-params: `extra_args` must be an object"},
      {{"--direct", "--engine-url", "h:1", "--default-sampling-params", R"({"top_p":2})"},
       "--default-sampling-params: `top_p` must be a number from 0 to 1"},
  };
  for (const auto& [arguments, message] : rows) {
    const auto settings = serve({.arguments = arguments});
    ASSERT_TRUE(settings.has_value()) << settings.error().message;
    const auto options = serve_options(*settings);
    ASSERT_FALSE(options.has_value()) << message;
    EXPECT_EQ(options.error().message, message);
    EXPECT_EQ(options.error().code, ErrorCode::InvalidRequest) << message;
  }
  for (const std::string url : {"https://h:1", "h:1/path", "ftp://h:1", "", "h:99999", "u@h:1"}) {
    const auto settings = serve({.arguments = {"--direct", "--engine-url", url}});
    ASSERT_TRUE(settings.has_value());
    EXPECT_FALSE(serve_options(*settings).has_value()) << url;
  }
  const auto good = serve({.arguments = {"--direct", "--engine-url", "vllm=h:1,grpc://h:2"}});
  ASSERT_TRUE(good.has_value());
  const auto options = serve_options(*good);
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->engines.size(), 2U);
  EXPECT_FALSE(options->card_folder.has_value());
}

ServeOptions options_of(const Inputs& inputs) {
  const auto settings = serve(inputs);
  EXPECT_TRUE(settings.has_value()) << settings.error().message;
  const auto options = serve_options(*settings);
  EXPECT_TRUE(options.has_value()) << options.error().message;
  return options ? *options : ServeOptions();
}

TEST(ServeOptions, EnginesOfSeveralBackendsMix) {
  const ServeOptions mixed =
      options_of({.arguments = {"--direct", "--direct-backend", "vllm-http", "--engine-url",
                                "h:1,vllm=h:2", "--engine-url", "vllm-http=http://h:3/"}});
  ASSERT_EQ(mixed.engines.size(), 3U);
  EXPECT_EQ(mixed.engines[0].backend, engine::Backend::VllmHttp);
  EXPECT_EQ(mixed.engines[1].backend, engine::Backend::Vllm);
  EXPECT_EQ(mixed.engines[2].backend, engine::Backend::VllmHttp);
  EXPECT_EQ(mixed.engines[2].endpoint.url, "http://h:3");
}

TEST(ServeOptions, AFolderOfCardsNeedsNoEnginesAndMayBeBesideThem) {
  const std::vector<std::string> folder{"--discovery-backend", "file", "--discovery-dir",
                                        "/nonexistent/cards"};
  const ServeOptions alone = options_of({.arguments = folder});
  ASSERT_TRUE(alone.card_folder.has_value());
  EXPECT_EQ(alone.card_folder->path, "/nonexistent/cards") << "it may come later";
  EXPECT_TRUE(alone.engines.empty());
  EXPECT_TRUE(alone.card_folder->filter.matches("anything"));

  std::vector<std::string> both = folder;
  both.insert(both.end(), {"--direct", "--engine-url", "h:1"});
  const ServeOptions beside = options_of({.arguments = both});
  EXPECT_TRUE(beside.card_folder.has_value());
  EXPECT_EQ(beside.engines.size(), 1U);
  EXPECT_TRUE(options_of({.arguments = {"--direct"},
                          .variables = {{"DYN_DISCOVERY_BACKEND", "file"},
                                        {"FAIRLEAD_DISCOVERY_DIR", "/tmp"}}})
                  .card_folder.has_value());
}

TEST(ServeOptions, ModelPathsAreForAllOrForOne) {
  const ServeOptions options =
      options_of({.arguments = {"--direct", "--engine-url", "h:1", "--model-path", "/all=here",
                                "--model-path", "org/name=/one", "--model-path", "other=./a=b"}});
  EXPECT_EQ(options.model_paths.common, "/all=here");
  EXPECT_EQ(options.model_paths.named,
            (std::map<std::string, std::string>{{"org/name", "/one"}, {"other", "./a=b"}}));
  EXPECT_EQ(options_of({.arguments = {"--direct", "--engine-url", "h:1"},
                        .variables = {{"DYN_MODEL_PATH", "Qwen/Qwen3-8B"}}})
                .model_paths.common,
            "Qwen/Qwen3-8B");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"/a", "/b"}, {"a=/a", "a=/b"}, {"=/a"}, {"a="}}) {
    std::vector<std::string> arguments{"--direct", "--engine-url", "h:1"};
    for (const std::string& value : wrong) {
      arguments.insert(arguments.end(), {"--model-path", value});
    }
    const auto refused = serve_options(*serve({.arguments = arguments}));
    ASSERT_FALSE(refused) << wrong.front();
    EXPECT_TRUE(refused.error().message.starts_with("--model-path: ")) << refused.error().message;
  }
}

TEST(ServeOptions, NamespacesFilterCards) {
  const auto filter_of = [](std::vector<std::string> arguments,
                            std::map<std::string, std::string> variables = {}) {
    arguments.insert(arguments.end(), {"--discovery-backend", "file", "--discovery-dir", "/tmp"});
    return options_of({.arguments = arguments, .variables = std::move(variables)})
        .card_folder->filter;
  };
  EXPECT_TRUE(filter_of({"--namespace", "a"}).matches("a"));
  EXPECT_FALSE(filter_of({"--namespace", "a"}).matches("b"));
  EXPECT_FALSE(filter_of({}, {{"DYN_NAMESPACE", "a"}}).matches("b"));
  EXPECT_TRUE(filter_of({"--namespace", "dynamo"}).matches("b"));
  EXPECT_TRUE(filter_of({"--namespace", "a", "--namespace-prefix", "b"}).matches("bc"));
  EXPECT_FALSE(filter_of({"--namespace", "a", "--namespace-prefix", "b"}).matches("a"));
  EXPECT_TRUE(filter_of({"--namespace", "a", "--namespace-prefix", ""}).matches("b"));
  EXPECT_FALSE(filter_of({"--namespace-prefix", "b", "--namespace-prefix-strict"}).matches("bc"));
  EXPECT_TRUE(filter_of({}, {{"DYN_NAMESPACE_PREFIX", "b"}, {"DYN_NAMESPACE_PREFIX_STRICT", "YES"}})
                  .matches("b-0123abcd"));
  EXPECT_FALSE(filter_of({}, {{"DYN_NAMESPACE_PREFIX", "b"}, {"DYN_NAMESPACE_PREFIX_STRICT", "1"}})
                   .matches("bc"));
}

TEST(OptionTables, RowsAreSoundAndDefaultsPassTheirOwnChecks) {
  for (const auto table : {serve_table(), demo_table(), mock_engine_table(), probe_table(),
                           tokenize_table(), render_table()}) {
    std::set<std::string> names;
    for (const OptionSpec& spec : table) {
      EXPECT_TRUE(names.insert(std::string(spec.name)).second) << spec.name;
      EXPECT_FALSE(spec.help.empty()) << spec.name;
      EXPECT_FALSE(spec.help.ends_with('.')) << spec.name;
      EXPECT_TRUE(spec.kind == OptionKind::Bool || !spec.value_name.empty()) << spec.name;
    }
    const auto settings = resolve(table, {});
    EXPECT_TRUE(settings.has_value()) << settings.error().message;
  }
}

TEST(OptionTables, NoVariableIsReadAndSaidToHaveNoEffect) {
  std::set<std::string> names;
  for (const OptionSpec& spec : serve_table()) {
    names.insert(dyn_environment_name(spec));
  }
  for (const UnsupportedVariable& variable : unsupported_variables()) {
    EXPECT_TRUE(names.insert(std::string(variable.name)).second) << variable.name;
  }
}

TEST(OptionTables, TheEngineTakesEveryOptionOfItsTable) {
  const Result<RawArguments> raw =
      parse_arguments(mock_engine_table(),
                      {"--seed", "7", "--role", "prefill", "--fault", "slow:5", "refuse",
                       "--no-enable-prefix-caching", "--eos-token-id", "1,2", "--extra-engine-args",
                       R"({"block_size":8,"max_num_seqs":3})", "--max-num-seqs", "9"});
  ASSERT_TRUE(raw.has_value()) << raw.error().message;
  const auto none = [](const std::string&) { return std::optional<std::string>(); };
  const auto settings = Settings::resolve(mock_engine_table(), *raw, none, {}, "");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  const auto options = mock_options(*settings);
  ASSERT_TRUE(options.has_value()) << options.error().message;
  EXPECT_EQ(options->seed, 7U);
  EXPECT_EQ(options->role, mock::Role::Prefill);
  EXPECT_EQ(options->faults.size(), 2U);
  EXPECT_FALSE(options->enable_prefix_caching);
  EXPECT_THAT(options->eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(options->block_size, 8U);
  EXPECT_EQ(options->scheduler.max_running, 9U) << "flags win over the JSON";

  // The defaults that help and documentation show are the engine's own.
  for (const OptionSpec& spec : mock_engine_table()) {
    if (spec.default_value.empty() || spec.name == "log-level" || spec.name == "backend") {
      continue;
    }
    mock::MockOptions plain;
    EXPECT_TRUE(mock::set_option(plain, spec.name, spec.default_value).has_value()) << spec.name;
    EXPECT_EQ(plain.block_size, mock::MockOptions().block_size);
    EXPECT_EQ(plain.num_gpu_blocks, mock::MockOptions().num_gpu_blocks);
    EXPECT_EQ(plain.max_model_len, mock::MockOptions().max_model_len);
    EXPECT_EQ(plain.listen_port, mock::MockOptions().listen_port);
    EXPECT_EQ(plain.seed, mock::MockOptions().seed);
    EXPECT_EQ(plain.scheduler.max_running, mock::MockOptions().scheduler.max_running);
    EXPECT_EQ(plain.scheduler.max_batched_tokens, mock::MockOptions().scheduler.max_batched_tokens);
    EXPECT_EQ(plain.kv_events_buffer_steps, mock::MockOptions().kv_events_buffer_steps);
  }
}

TEST(ConfigFile, ReadsTheNotationItPromises) {
  const auto entries = parse_config(
      "# head\n a = 1 # c\r\nb='x # y'\nc = \"q\\\"\\n\" \nd = [1, 'two',\n  \"3\"] # end\n"
      "e = true\n[serve]\nf = bare words\n[demo]\ng = 1\n",
      "serve", kTables);
  ASSERT_TRUE(entries.has_value()) << entries.error().message;
  ASSERT_EQ(entries->size(), 6U);
  EXPECT_THAT((*entries)[0].values, ElementsAre("1"));
  EXPECT_THAT((*entries)[1].values, ElementsAre("x # y"));
  EXPECT_THAT((*entries)[2].values, ElementsAre("q\"\n"));
  EXPECT_THAT((*entries)[3].values, ElementsAre("1", "two", "3"));
  EXPECT_THAT((*entries)[5].values, ElementsAre("bare words"));
  EXPECT_EQ((*entries)[5].line, 9);
}

TEST(ConfigFile, MistakesNameTheLine) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"a\n", "line 1: expected `=`"},
      {"\n= 1", "line 2: expected `key = value`"},
      {"a = \n", "line 1: a value is missing"},
      {"a = 'x\n", "line 1: a text without its closing quote"},
      {"a = \"x", "line 1: a text without its closing quote"},
      {"a = \"\\q\"", "line 1: an unknown escape"},
      {"a = 'x' y", "line 1: unexpected text"},
      {"a = [1\n2]", "line 2: expected `,` or `]`"},
      {"a = [1,\n", "`[` without `]`"},
      {"[x", "line 1: `[` without `]`"},
      {"[a.b]", "line 1: a table name holds"},
      {"\n[sreve]\n", "line 2: `[sreve]` is the table of no command; did you mean `[serve]`?"},
      {"[zzzzzzz]\n", "line 1: `[zzzzzzz]` is the table of no command"},
      {"a = \xff", "not UTF-8"},
  };
  for (const auto& [text, message] : rows) {
    const auto parsed = parse_config(text, "serve", kTables);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr(message)) << text;
  }
}

TEST(ReadFile, TakesBoundedFilesAndPipesOnly) {
  const std::string path = ::testing::TempDir() + "read_file_test";
  std::ofstream(path) << "12345";
  EXPECT_EQ(read_file(path, 5), "12345");
  EXPECT_THAT(read_file(path, 4).error().message, HasSubstr("it is longer than 4 bytes"));
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  close(ends[1]);
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0])), "abc");
  close(ends[0]);
  EXPECT_EQ(read_file("/dev/null"), "");
  const std::string fifo = path + "_pipe";
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(read_file(fifo, 5, std::chrono::milliseconds(1)).error().message,
              HasSubstr("nothing came out of the pipe for 0.001 s"));
  std::thread writer([&] { std::ofstream(fifo) << "late"; });
  EXPECT_EQ(read_file(fifo), "late");
  writer.join();
  ASSERT_EQ(unlink(fifo.c_str()), 0);
  for (const std::string& other : {std::string("/dev/zero"), ::testing::TempDir()}) {
    const auto refused = read_file(other);
    ASSERT_FALSE(refused) << other;
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidRequest);
    EXPECT_THAT(refused.error().message, HasSubstr("neither a regular file nor a pipe"));
  }
}

TEST(Documentation, ThePageInDocsIsCurrent) {
  const auto page = read_file(FAIRLEAD_SOURCE_DIR "/docs/configuration.md");
  ASSERT_TRUE(page.has_value()) << page.error().message;
  EXPECT_EQ(*page, configuration_page())
      << "write it anew: fairlead config docs > docs/configuration.md";
}

}  // namespace
}  // namespace fairlead::cli
