#include <algorithm>

#include "app/rows/field_table.h"

// Names that rows written for other programs carry, and what they may say.
namespace tokenmill::rows {
namespace {

using io::JsonValue;

bool is_number(const JsonValue& v, double wanted) { return v.is_number() && v.as_double() == wanted; }
bool is_bool(const JsonValue& v, bool wanted) { return v.is_bool() && v.as_bool() == wanted; }
bool zero(const JsonValue& v) { return is_number(v, 0); }
bool one(const JsonValue& v) { return is_number(v, 1); }
bool no(const JsonValue& v) { return is_bool(v, false); }
bool yes(const JsonValue& v) { return is_bool(v, true); }
bool never(const JsonValue&) { return false; }
bool anything(const JsonValue&) { return true; }
bool empty_list(const JsonValue& v) { return v.is_array() && v.items().empty(); }
bool empty_object(const JsonValue& v) { return v.is_object() && v.members().empty(); }
bool empty_text(const JsonValue& v) { return v.is_string() && v.as_string().empty(); }
bool text_format(const JsonValue& v) {
  const JsonValue* type = v.is_object() && v.members().size() == 1 ? v.find("type") : nullptr;
  return type != nullptr && type->is_string() && type->as_string() == "text";
}
bool text_only(const JsonValue& v) {
  return v.is_array() && v.items().size() == 1 && v.items()[0].is_string() && v.items()[0].as_string() == "text";
}
bool output_kind(const JsonValue& v) {
  if (v.is_number()) return zero(v) || one(v) || is_number(v, 2);
  return v.is_string() && (v.as_string() == "CUMULATIVE" || v.as_string() == "DELTA" || v.as_string() == "FINAL_ONLY");
}
bool positive(const JsonValue& v) { return v.is_number() && v.fits_int64() && v.as_int64() >= 1; }
bool has_64_bits(const JsonValue& v) {
  if (v.is_array()) return std::all_of(v.items().begin(), v.items().end(), has_64_bits);
  if (v.is_object())
    return std::all_of(v.members().begin(), v.members().end(), [](const auto& m) { return has_64_bits(m.second); });
  const bool whole = v.is_number() && v.number_text().find_first_not_of("-0123456789") == std::string_view::npos;
  return !whole || v.fits_int64() || v.fits_uint64();
}
bool arguments(const JsonValue& v) { return v.is_object() && has_64_bits(v); }
bool auto_or_none(const JsonValue& v) { return v.is_string() && (v.as_string() == "auto" || v.as_string() == "none"); }
bool auto_or_default(const JsonValue& v) {
  return v.is_string() && (v.as_string() == "auto" || v.as_string() == "default");
}

constexpr const char* kSeveralAnswers = "for several answers set n and a temperature";
constexpr const char* kForm = "ask for the form in the prompt, and check the text";
constexpr const char* kNativeOnly = "a native row takes it";
constexpr const char* kMembers = "write its members into the row, or under sampling, by the names of this version";
constexpr const char* kBias = "logit_bias takes tokens by id: -100 bans one";
constexpr const char* kRepeats = "repetition_penalty, frequency_penalty and repetition_detection come near";
constexpr const char* kHiddenStates = "--hidden-states writes them to output.h5";

/// A name that only other programs have.
constexpr NeutralField foreign(const char* name, bool (*neutral)(const JsonValue&), const char* neutral_text,
                               const char* advice = nullptr) {
  return {name, kAllShapes, neutral, neutral_text, nullptr, advice, true};
}
/// Another program's name of a field that this one has.
constexpr NeutralField renamed(const char* name, const char* instead) {
  return {name, kAllShapes, never, nullptr, instead, nullptr, true};
}

}  // namespace

const std::vector<NeutralField>& neutral_fields() {
  static const std::vector<NeutralField> table = {
      {"best_of", kAllShapes, one, "1", nullptr, kSeveralAnswers},
      {"length_penalty", kAllShapes, one, "1"},
      {"use_beam_search", kAllShapes, no, "false", nullptr, kSeveralAnswers},
      {"early_stopping", kAllShapes, no, "false"},
      {"beam_width", kAllShapes, one, "1", nullptr, kSeveralAnswers},
      {"top_logprobs", kN, zero, "0", "logprobs"},
      {"flat_logprobs", kBodies, no, "false", nullptr, kNativeOnly},
      {"prompt_logprob_token_ids", kBodies, never, nullptr, nullptr, kNativeOnly},
      {"prompt_logprob_start", kBodies, zero, "0", nullptr, kNativeOnly},
      // How an answer is handed out while it grows: here it is written when it is whole.
      {"output_kind", kAllShapes, output_kind, "\"CUMULATIVE\", \"DELTA\" or \"FINAL_ONLY\""},
      {"stream_interval", kAllShapes, positive, "whole numbers of at least 1"},
      {"skip_clone", kAllShapes, [](const JsonValue& v) { return v.is_bool(); }, "true and false"},
      {"structured_outputs", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_decoding", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_json", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_json_object", kAllShapes, no, "false", nullptr, kForm},
      {"guided_regex", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_choice", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_grammar", kAllShapes, never, nullptr, nullptr, kForm},
      {"guided_decoding_backend", kAllShapes, never, nullptr},
      {"guided_whitespace_pattern", kAllShapes, never, nullptr},
      {"response_format", kAllShapes, text_format, "{\"type\":\"text\"}", nullptr, kForm},
      // For samplers of one's own, of which there are none.
      {"extra_args", kAllShapes, arguments, "an object whose whole numbers have 64 bits"},
      {"vllm_xargs", kAllShapes, arguments, "an object whose whole numbers have 64 bits"},
      {"watermarking", kAllShapes, no, "false"},
      {"routed_experts_prompt_start", kAllShapes, zero, "0"},
      {"suffix", kN | kText, empty_text, "\"\""},
      {"chat_template", kText, never, nullptr},
      {"priority", kAllShapes, zero, "0"},
      {"kv_transfer_params", kAllShapes, never, nullptr},
      {"return_token_offsets", kAllShapes, no, "false"},
      {"stream", kAllShapes, no, "false"},
      {"stream_options", kAllShapes, never, nullptr},
      {"functions", kChat, empty_list, "[]"},
      {"function_call", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
      {"parallel_tool_calls", kN | kChat, anything, nullptr},  // says how many calls, and tools themselves are refused
      {"tool_choice", kN | kChat, auto_or_none, "\"auto\" or \"none\""},
      {"include_reasoning", kN | kChat, yes, "true"},
      {"modalities", kChat, text_only, "[\"text\"]"},
      {"audio", kChat, never, nullptr},
      {"prediction", kChat, never, nullptr},
      {"web_search_options", kChat, never, nullptr},
      {"verbosity", kChat, never, nullptr},
      {"request_id", kBodies, never, nullptr},
      {"session_id", kBodies, never, nullptr},
      {"service_tier", kBodies, auto_or_default, "\"auto\" or \"default\""},
      // Bookkeeping of OpenAI's service: no bearing on the answer.
      {"model", kBodies, [](const JsonValue& v) { return v.is_string(); }, "a string"},
      {"user", kBodies, anything, nullptr},
      {"metadata", kBodies, anything, nullptr},
      {"store", kBodies, anything, nullptr},
      {"safety_identifier", kBodies, anything, nullptr},
      {"prompt_cache_key", kBodies, anything, nullptr},
      // vLLM's requests beside the row itself, SGLang, Hugging Face's text-generation-inference.
      foreign("sampling_params", empty_object, "{}", kMembers),
      foreign("extra_body", empty_object, "{}", kMembers),
      foreign("generation_config", empty_object, "{}", kMembers),
      foreign("generation_kwargs", empty_object, "{}", kMembers),
      foreign("parameters", empty_object, "{}", kMembers),
      foreign("logits_processors", empty_list, "[]"),
      foreign("custom_logit_processor", never, nullptr),
      foreign("custom_params", empty_object, "{}"),
      foreign("lora_request", never, nullptr),
      foreign("lora_path", never, nullptr),
      foreign("adapter_id", never, nullptr),
      foreign("json_schema", never, nullptr, kForm),
      foreign("regex", never, nullptr, kForm),
      foreign("ebnf", never, nullptr, kForm),
      foreign("grammar", never, nullptr, kForm),
      foreign("structural_tag", never, nullptr, kForm),
      foreign("stop_regex", never, nullptr, "stop takes texts"),
      renamed("stop_words", "stop"),
      renamed("stop_sequences", "stop"),
      renamed("stop_strings", "stop"),
      renamed("no_stop_trim", "include_stop_str_in_output"),
      renamed("max_new_tokens", "max_tokens"),
      renamed("max_output_tokens", "max_tokens"),
      renamed("max_tokens_to_sample", "max_tokens"),
      renamed("n_predict", "max_tokens"),
      renamed("num_predict", "max_tokens"),
      {"min_new_tokens", kAllShapes, zero, "0", "min_tokens", nullptr, true},
      renamed("sampling_seed", "seed"),
      renamed("random_seed", "seed"),
      renamed("repeat_penalty", "repetition_penalty"),
      renamed("sampling_temperature", "temperature"),
      renamed("sampling_topk", "top_k"),
      renamed("sampling_topp", "top_p"),
      renamed("num_return_sequences", "n"),
      renamed("return_full_text", "echo"),
      renamed("truncate", "truncate_prompt_tokens"),
      renamed("return_logprob", "logprobs"),
      renamed("top_logprobs_num", "logprobs"),
      renamed("top_n_tokens", "logprobs"),
      renamed("n_probs", "logprobs"),
      renamed("token_ids_logprob", "logprob_token_ids"),
      renamed("logprob_start_len", "prompt_logprobs"),
      {"decoder_input_details", kAllShapes, no, "false", "prompt_logprobs", nullptr, true},
      foreign("return_hidden_states", no, "false", kHiddenStates),
      foreign("watermark", no, "false"),
      // transformers' GenerationConfig.
      foreign("do_sample", never, nullptr, "temperature says it: 0 is greedy, above 0 samples"),
      foreign("max_length", never, nullptr, "max_tokens counts the answer, --max-model-len prompt and answer"),
      foreign("min_length", zero, "0", "min_tokens counts the answer"),
      foreign("max_time", never, nullptr, "--max-seconds is the job's"),
      foreign("num_beams", one, "1", kSeveralAnswers),
      foreign("num_beam_groups", one, "1", kSeveralAnswers),
      foreign("diversity_penalty", zero, "0"),
      foreign("no_repeat_ngram_size", zero, "0", kRepeats),
      foreign("encoder_no_repeat_ngram_size", zero, "0"),
      foreign("encoder_repetition_penalty", one, "1"),
      foreign("exponential_decay_length_penalty", never, nullptr),
      foreign("typical_p", one, "1"),
      foreign("epsilon_cutoff", zero, "0"),
      foreign("eta_cutoff", zero, "0"),
      foreign("penalty_alpha", zero, "0"),
      foreign("guidance_scale", one, "1"),
      foreign("sequence_bias", empty_object, "{}", kBias),
      foreign("suppress_tokens", empty_list, "[]", kBias),
      foreign("begin_suppress_tokens", empty_list, "[]", kBias),
      foreign("bad_words_ids", empty_list, "[]", "bad_words takes texts"),
      foreign("force_words_ids", empty_list, "[]"),
      foreign("forced_bos_token_id", never, nullptr),
      foreign("forced_eos_token_id", never, nullptr),
      renamed("eos_token_id", "stop_token_ids"),
      foreign("bos_token_id", never, nullptr, "add_special_tokens says whether the start token is there"),
      foreign("pad_token_id", anything, nullptr),
      foreign("use_cache", yes, "true"),
      foreign("output_scores", no, "false", "logprobs reports them"),
      foreign("output_logits", no, "false", "logprobs reports scores"),
      foreign("output_hidden_states", no, "false", kHiddenStates),
      foreign("output_attentions", no, "false"),
      // llama.cpp and programs around it.
      foreign("repeat_last_n", never, nullptr, kRepeats),
      foreign("mirostat", zero, "0"),
      foreign("mirostat_tau", never, nullptr),
      foreign("mirostat_eta", never, nullptr),
      foreign("tfs_z", one, "1"),
      foreign("top_a", zero, "0"),
      foreign("dry_multiplier", zero, "0", kRepeats),
      foreign("xtc_probability", zero, "0"),
      foreign("dynatemp_range", zero, "0"),
      foreign("cache_prompt", yes, "true"),
  };
  return table;
}

}  // namespace tokenmill::rows
