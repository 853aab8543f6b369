#include <array>

#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

using enum OptionKind;

constexpr OptionSpec kLogLevel{.name = "log-level",
                               .value_name = "LEVEL",
                               .default_value = "warn",
                               .help = "Severity from which lines are logged to stderr",
                               .choices = "trace,debug,info,warn,error,off"};

constexpr auto kDemo = std::to_array<OptionSpec>({
    {.name = "http-host",
     .value_name = "HOST",
     .default_value = "127.0.0.1",
     .help = "Address to listen on"},
    {.name = "http-port",
     .kind = Integer,
     .value_name = "PORT",
     .default_value = "8000",
     .help = "Port to listen on; when it is taken, or 0, a free one",
     .minimum = 0,
     .maximum = 65535},
    kLogLevel,
});

constexpr auto kProbe = std::to_array<OptionSpec>({
    {.name = "direct-backend",
     .value_name = "NAME",
     .default_value = "vllm",
     .help =
         "What the engine speaks: vllm (its native gRPC), vllm-http (its HTTP server) or sglang "
         "(SGLang's native gRPC); `BACKEND=URL` says it as well"},
    {.name = "timeout-secs",
     .kind = Number,
     .value_name = "SECS",
     .default_value = "10",
     .help = "Give up after so long",
     .dyn_name = "-",
     .minimum = 0.1,
     .maximum = 600},
});

constexpr auto kTokenize = std::to_array<OptionSpec>({
    {.name = "model",
     .value_name = "PATH",
     .help = "Model folder, one tokenizer file, or a hub name, ORG/NAME[@REVISION]. What a "
             "tokenizer.json says about truncation and padding is done",
     .dyn_name = "-"},
    {.name = "decode", .kind = Bool, .help = "Lines hold ids; answer with text", .dyn_name = "-"},
});

constexpr auto kRender = std::to_array<OptionSpec>({
    {.name = "model",
     .value_name = "PATH",
     .help = "Model folder or hub name whose template is used when a line brings none",
     .dyn_name = "-"},
});

}  // namespace

std::span<const OptionSpec> demo_table() { return kDemo; }

std::span<const OptionSpec> probe_table() { return kProbe; }

std::span<const OptionSpec> tokenize_table() { return kTokenize; }

std::span<const OptionSpec> render_table() { return kRender; }

}  // namespace fairlead::cli
