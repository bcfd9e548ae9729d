// What a refused call is told: operator, field and both shapes in the letters of whoever called, and the remedy.
#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/dplr.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/gated_rfa.hpp>
#include <ogive/ops/gla.hpp>
#include <ogive/ops/hgrn2.hpp>
#include <ogive/ops/iplr.hpp>
#include <ogive/ops/kda.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/rwkv4.hpp>
#include <ogive/ops/rwkv5.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/ops/simple_gla.hpp>
#include <ogive/ops/ssd.hpp>

#include <limits>
#include <string>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

constexpr index_t B = 2, L = 5, H = 2, K = 3, V = 4;

/// Tensors of the usual shapes, and some that are wrong.
struct shapes {
  tensor<float, 4> k{{B, L, H, K}}, v{{B, L, H, V}}, narrow{{B, L, H, K + 1}}, o{{B, L, H, V}};
  tensor<float, 3> g{{B, L, H}}, beta{{B, L, H}}, short_beta{{B, L, H - 1}};
  tensor<float, 2> u{{H, K}}, wide_u{{H, K + 1}};
  tensor<float, 1> gamma{{H}}, long_gamma{{H + 1}};
  tensor<float, 4> pool{{8, H, K, V}};
  tensor<float, 3> z{{8, H, K}};

  delta_rule<float> delta() { return {.q = k, .k = k, .v = v, .beta = beta}; }
  gated_delta_rule<float> gated_delta() { return {.q = k, .k = k, .v = v, .g = g, .beta = beta}; }
  kda<float> kimi() { return {.q = k, .k = k, .v = v, .g = k, .beta = beta}; }
  gla<float> gated() { return {.q = k, .k = k, .v = v, .g = k}; }
  retention<float> retentive() { return {.q = k, .k = k, .v = v, .log_gamma = gamma}; }
  rwkv5<float> fifth() { return {.r = k, .k = k, .v = v, .w = u, .u = u}; }
  rwkv6<float> sixth() { return {.r = k, .k = k, .v = v, .w = k, .u = u}; }
  rwkv7<float> seventh() { return {.r = k, .w = k, .k = k, .v = v, .kk = k, .a = k}; }
};

void told(const status& asked, const std::string& words) {
  CHECK(!asked);
  CHECK(std::string(asked.text()) == words);
}

}  // namespace

TEST_CASE("beta is refused with the rank that the caller gave it") {
  shapes x;
  const auto refused = [&](auto op) {
    const std::string name = op.name;
    op.beta = x.short_beta;
    told(check(op, {}, x.o), name + ": beta has shape [2, 5, 1], expected [2, 5, 2] = [B, L, H], H as v, B and L as q");
    op.beta = {};
    told(check(op, {}, x.o), name + ": beta is absent; give a view of rank 3");
    op.beta = view<const float, 3>(x.o.data(), {B, L, H});
    told(check(op, {}, x.o), name + ": o of shape [2, 5, 2, 4] is written and overlaps beta of shape [2, 5, 2]; give " +
                                 "it memory of its own");
    op.beta = x.beta;
    gradient<decltype(op)> d{};
    d.beta = x.short_beta;
    told(check_backward(op, {}, x.o, {}, d), name + ": d.beta has shape [2, 5, 1], expected [2, 5, 2] = as the field");
    d.beta = x.beta;
    told(check_backward(op, {}, x.o, {}, d), name +
                                                 ": d.beta of shape [2, 5, 2] is written and overlaps beta of shape " +
                                                 "[2, 5, 2]; give it memory of its own");
  };
  refused(x.delta());
  refused(x.gated_delta());
  refused(x.kimi());

  auto op = x.delta();
  op.beta = {};
  op.beta_per_value = x.narrow.all().slice(3, 0, K);
  told(check(op, {}, x.o),
       "delta_rule: beta_per_value has shape [2, 5, 2, 3], expected [2, 5, 2, 4] = [B, L, H, V] as v");
  op.beta_per_value = x.v.all().slice(3, 0, 1);
  CHECK(!check(op, {}, x.o));  // one column is not V of them
  op.beta_per_value = x.v;
  CHECK(check(op, {}, x.o));
  told(check_backward(op, {}, x.o, {}, {.beta_per_value = x.k}),
       "delta_rule: d.beta_per_value has shape [2, 5, 2, 3], expected [2, 5, 2, 4] = as the field");
  told(check_backward(op, {}, x.o, {}, {.beta = x.beta}), "delta_rule: d.beta is asked for, but its field is absent");
  op.beta = x.beta;
  CHECK(check(op, {}, x.o).code() == status_code::value);
}

TEST_CASE("parameters that all tokens share are refused with their own shapes") {
  shapes x;
  auto retention = x.retentive();
  told(check_backward(retention, {}, x.o, {}, {.log_gamma = x.long_gamma}),
       "retention: d.log_gamma has shape [3], expected [2] = as the field");
  told(check_backward(retention, {}, x.o, {}, {.log_gamma = x.gamma}),
       "retention: d.log_gamma of shape [2] is written and overlaps log_gamma of shape [2]; give it memory of its own");
  retention.log_gamma = view<const float, 1>(x.o.data(), {H});
  told(check(retention, {}, x.o),
       "retention: o of shape [2, 5, 2, 4] is written and overlaps log_gamma of shape [2]; give it memory of its own");
  retention.log_gamma = x.long_gamma;
  told(check(retention, {}, x.o), "retention: log_gamma has shape [3], expected [2] = [H], H as v");

  auto fifth = x.fifth();
  told(check_backward(fifth, {}, x.o, {}, {.w = x.wide_u}),
       "rwkv5: d.w has shape [2, 4], expected [2, 3] = as the field");
  told(check_backward(fifth, {}, x.o, {}, {.w = x.u}),
       "rwkv5: d.w of shape [2, 3] is written and overlaps w of shape [2, 3]; give it memory of its own");
  tensor<float, 2> d_w({H, K});
  told(check_backward(fifth, {}, x.o, {}, {.w = d_w, .u = d_w}),
       "rwkv5: d.w of shape [2, 3] is written and overlaps d.u of shape [2, 3]; give it memory of its own");
  told(check_backward(fifth, {}, x.o, {}, {.w = view<float, 2>(d_w.data(), {H, K}, {0, 1})}),
       "rwkv5: d.w of shape [2, 3] and strides [0, 1] is written, but several of its indices are one element; give it "
       "memory of its own");
}

TEST_CASE("messages speak in the letters of the operator") {
  shapes x;
  auto sixth = x.sixth();
  sixth.k = x.narrow;
  told(check(sixth, {}, x.o),
       "rwkv6: k has shape [2, 5, 2, 4], expected [2, 5, any, 3] = [B, L, Hk, K], B, L and K as r");
  sixth = x.sixth();
  sixth.u = x.wide_u;
  told(check(sixth, {}, x.o), "rwkv6: u has shape [2, 4], expected [2, 3] = [H, K], H as v, K as r");

  auto seventh = x.seventh();
  seventh.a = x.narrow;
  told(check(seventh, {}, x.o), "rwkv7: a has shape [2, 5, 2, 4], expected [2, 5, 2, 3] = [B, L, Hk, K] as k");
  seventh = x.seventh();
  seventh.a = {};
  told(check(seventh, {}, x.o), "rwkv7: a is absent; give a view of rank 4");
  seventh = x.seventh();
  told(check_backward(seventh, {}, x.o, {}, {.a = x.narrow}),
       "rwkv7: d.a has shape [2, 5, 2, 4], expected [2, 5, 2, 3] = as the field");
  tensor<float, 4> own({B, L, H, K});
  seventh.a = own;
  told(check_backward(seventh, {}, x.o, {}, {.a = own}),
       "rwkv7: d.a of shape [2, 5, 2, 3] is written and overlaps a of shape [2, 5, 2, 3]; give it memory of its own");
}

TEST_CASE("an epsilon that is negative or not a number is refused") {
  shapes x;
  const auto refused = [&](auto op, const char* name, auto field, const auto& asked) {
    using Eps = std::remove_cvref_t<decltype(op.*field)>;
    op.*field = Eps(0.0F);
    CHECK(asked(op));
    op.*field = Eps(-1e-6F);
    told(asked(op), std::string(op.name) + ": " + name + " is negative, must be at least 0");
    op.*field = Eps(std::numeric_limits<float>::quiet_NaN());
    told(asked(op), std::string(op.name) + ": " + name + " is not a number, must be at least 0");
    CHECK(asked(op).code() == status_code::value);
  };
  const auto both = [&](const auto& op, const char* name, auto field) {
    refused(op, name, field, [&](const auto& one) { return check(one, {}, x.o); });
    refused(op, name, field, [&](const auto& one) { return check_backward(one, {}, x.o, {}, {}); });
  };
  const auto unit = [&](const auto& op) { both(op, "qk_l2norm", &std::remove_cvref_t<decltype(op)>::qk_l2norm); };
  unit(x.delta());
  unit(x.gated_delta());
  unit(x.kimi());
  unit(x.gated());
  unit(x.retentive());
  unit(x.fifth());
  unit(x.sixth());
  unit(x.seventh());
  unit(simple_gla<float>{.q = x.k, .k = x.k, .v = x.v, .g = x.beta});
  unit(hgrn2<float>{.q = x.k, .v = x.v, .g = x.k});
  unit(dplr<float>{.q = x.k, .k = x.k, .v = x.v, .a = x.k, .b = x.k, .g = x.k});
  unit(iplr<float>{.q = x.k, .k = x.k, .v = x.v, .a = x.k, .b = x.k});
  unit(ssd<float>{.x = x.v, .dt = x.beta, .A = x.gamma, .B = x.k, .C = x.k});
  const auto quotient = [&](const auto& op) {
    unit(op);
    both(op, "eps", &std::remove_cvref_t<decltype(op)>::eps);
    auto plain = op;
    plain.normalise = false;
    plain.eps = -1;
    CHECK(check(plain, {}, x.o));
  };
  quotient(linear_attention<float>{.q = x.k, .k = x.k, .v = x.v});
  quotient(noncausal_linear_attention<float>{.q = x.k, .k = x.k, .v = x.v});
  quotient(gated_rfa<float, maps::elu1>{.q = x.k, .k = x.k, .v = x.v, .g = x.beta});
}

TEST_CASE("a pool of states that are more or fewer than the sequences is told of slots") {
  shapes x;
  const auto op = x.gated();
  const std::string shape = "has shape [8, 2, 3, 4], expected [2, 2, 3, 4] = [slots, H, K, V]",
                    rest = "; a pool that has not one slot per sequence wants ", entry = ", one entry per sequence";
  told(check(op, x.pool, x.o),
       "gla: initial (and final, the same pool) " + shape + rest + "initial_slots and final_slots" + entry);
  told(check(op, state<float>{.initial = x.pool}, x.o), "gla: initial " + shape + rest + "initial_slots" + entry);
  told(check(op, state<float>{.final = x.pool}, x.o), "gla: final " + shape + rest + "final_slots" + entry);
  const std::vector<std::int32_t> slots{5, 2};
  told(check(op, state<float>{.initial = x.pool, .final = x.pool, .initial_slots = slots}, x.o),
       "gla: final " + shape + rest + "final_slots" + entry);
  CHECK(check(op, state<float>{.initial = x.pool, .final = x.pool, .initial_slots = slots, .final_slots = slots}, x.o));

  // A slot of other extents is another matter.
  const auto thin = x.pool.all().slice(2, 0, K - 1);
  told(check(op, state<float>{.initial = thin}, x.o),
       "gla: initial has shape [8, 2, 2, 4], expected [2, 2, 3, 4] = [slots, H, K, V]");
  told(check(op, state<float>{.initial = thin, .initial_slots = slots}, x.o),
       "gla: initial has shape [8, 2, 2, 4], expected [any, 2, 3, 4] = [slots, H, K, V]");

  const linear_attention<float> sum{.q = x.k, .k = x.k, .v = x.v};
  told(check(sum, linear_attention_state<float>{.initial = x.pool.all().slice(0, 0, B), .z_initial = x.z}, x.o),
       "linear_attention: z_initial has shape [8, 2, 3], expected [2, 2, 3] = [slots, H, K]" + rest + "initial_slots" +
           entry);
  tensor<float, 3> row({B, L, K}), three({8, 3, K});
  const rwkv4<float> fourth{.k = row, .v = row, .w = x.u.all()[0], .u = x.u.all()[0]};
  told(check(fourth, three, view<float, 3>(x.o.data(), {B, L, K})),
       "rwkv4: initial (and final, the same pool) has shape [8, 3, 3], expected [2, 3, 3] = [slots, 3, C]" + rest +
           "initial_slots and final_slots" + entry);
  tensor<float, 3> pool({8, K, H});
  const selective_scan<float> scan{.u = row,
                                   .dt = row,
                                   .A = view<const float, 2>(x.o.data(), {K, H}),
                                   .B = view<const float, 4>(x.o.data(), {B, L, 1, H}),
                                   .C = view<const float, 4>(x.o.data(), {B, L, 1, H})};
  told(check(scan, pool, row),
       "selective_scan: initial (and final, the same pool) has shape [8, 3, 2], expected [2, 3, 2] = [slots, D, N]" +
           rest + "initial_slots and final_slots" + entry);
}

TEST_CASE("a slot that two states would use is told with both lists") {
  shapes x;
  const auto op = x.gated();
  const std::vector<std::int32_t> ends{6, 1}, starts{0, 7};
  std::vector<std::int32_t> after(B * L, -1), at{-1, -1};
  const std::string own = "; give each state a slot of its own";
  state<float> st{.initial = x.pool, .final = x.pool, .initial_slots = starts, .final_slots = ends};
  st.snapshots = x.pool;
  st.snapshot_slots = view<const std::int32_t, 2>(after, {B, L});
  CHECK(check(op, st, x.o));
  after[3] = 1;
  told(check(op, st, x.o),
       "gla: snapshot_slots names slot 1 of snapshots, which final_slots names in the same pool" + own);
  after[3] = 7;
  told(check(op, st, x.o),
       "gla: snapshot_slots names slot 7 of snapshots, which initial_slots names in the same pool" + own);
  after[3] = after[8] = 4;
  told(check(op, st, x.o), "gla: snapshot_slots names slot 4 of snapshots twice" + own);
  after[8] = -1;
  st.boundaries = x.pool;
  st.boundary_slots = view<const std::int32_t, 2>(at, {B, 1});
  st.interval = L;
  CHECK(check(op, st, x.o));
  at[1] = 4;
  told(check(op, st, x.o),
       "gla: boundary_slots names slot 4 of boundaries, which snapshot_slots names in the same pool" + own);
  at[1] = 3;
  CHECK(check(op, st, x.o));

  // Without lists sequence s has slot s.
  state<float> plain{.final = x.pool.all().slice(0, 0, B), .snapshots = x.pool, .snapshot_slots = st.snapshot_slots};
  CHECK(check(op, plain, x.o));
  after[3] = 1;
  told(check(op, plain, x.o),
       "gla: snapshot_slots names slot 1 of snapshots, which final, the same pool, uses for sequence 1" + own);
}

TEST_CASE("every field is refused by its own name, shape and letters") {
  shapes x;
  const auto refused = [&](auto op, auto field, const auto& wrong, const std::string& words) {
    op.*field = wrong;
    told(check(op, {}, x.o), std::string(op.name) + ": " + words);
    using View = std::remove_cvref_t<decltype(op.*field)>;
    op.*field = View();
    const std::string name = words.substr(0, words.find(' '));
    told(check(op, {}, x.o),
         std::string(op.name) + ": " + name + " is absent; give a view of rank " + std::to_string(View::rank));
  };
  const std::string wide = " has shape [2, 5, 2, 4], expected [2, 5, 2, 3] = [B, L, ";
  const auto late = x.v.all().slice(1, 0, L - 1);
  using gated = gla<float>;
  const auto refuses_keys = [&](const auto& op, const std::string& q) {
    refused(op, &std::remove_cvref_t<decltype(op)>::k, x.narrow,
            "k has shape [2, 5, 2, 4], expected [2, 5, any, 3] = [B, L, Hk, K], B, L and K as " + q);
  };
  refuses_keys(x.gated(), "q");
  refuses_keys(x.retentive(), "q");
  refuses_keys(x.delta(), "q");
  refuses_keys(x.kimi(), "q");
  refuses_keys(x.sixth(), "r");
  refuses_keys(x.seventh(), "r");
  refused(x.gated(), &gated::v, late,
          "v has shape [2, 4, 2, 4], expected [2, 5, any, any] = [B, L, H, V], B and L as q");
  refused(x.gated(), &gated::g, x.narrow, "g" + wide + "H, K], H as v, B, L and K as q");
  refused(simple_gla<float>{.q = x.k, .k = x.k, .v = x.v, .g = x.g}, &simple_gla<float>::g, x.short_beta,
          "g has shape [2, 5, 1], expected [2, 5, 2] = [B, L, H], H as v, B and L as q");
  refused(hgrn2<float>{.q = x.k, .v = x.v, .g = x.k}, &hgrn2<float>::g, x.narrow,
          "g" + wide + "H, K], H as v, B, L and K as q");
  refused(x.sixth(), &rwkv6<float>::w, x.narrow, "w" + wide + "H, K], H as v, B, L and K as r");
  const dplr<float> removes{.q = x.k, .k = x.k, .v = x.v, .a = x.k, .b = x.k, .g = x.k};
  refused(removes, &dplr<float>::a, x.narrow, "a" + wide + "Hk, K] as k");
  refused(removes, &dplr<float>::b, x.narrow, "b" + wide + "Hk, K] as k");
  const iplr<float> forgetless{.q = x.k, .k = x.k, .v = x.v, .a = x.k, .b = x.k};
  refused(forgetless, &iplr<float>::a, x.narrow, "a" + wide + "Hk, K] as k");
  refused(forgetless, &iplr<float>::b, x.narrow, "b" + wide + "Hk, K] as k");
  refused(x.seventh(), &rwkv7<float>::kk, x.narrow, "kk" + wide + "Hk, K] as k");
  const ssd<float> dual{.x = x.v, .dt = x.beta, .A = x.gamma, .B = x.k, .C = x.k};
  refused(dual, &ssd<float>::dt, x.short_beta, "dt has shape [2, 5, 1], expected [2, 5, 2] = [B, L, H] as x");
  refused(dual, &ssd<float>::A, x.long_gamma, "A has shape [3], expected [2] = [H] as x");
  refused(dual, &ssd<float>::C, x.narrow, "C" + wide + "G, N] as B");

  const auto told_of_outputs = [&](const auto& op, const std::string& letters) {
    told(check(op, {}, x.o.all().slice(1, 0, L - 1)),
         std::string(op.name) + ": o has shape [2, 4, 2, 4], expected [2, 5, 2, 4] = " + letters);
    told(check_backward(op, {}, x.o.all().slice(1, 0, L - 1), {}, {}),
         std::string(op.name) + ": d_o has shape [2, 4, 2, 4], expected [2, 5, 2, 4] = " + letters);
  };
  told_of_outputs(x.gated(), "[B, L, max(H, Hq), V]");
  told_of_outputs(dual, "[B, L, H, P]");
}

TEST_CASE("heads that do not divide each other are told with their numbers") {
  tensor<float, 4> any({B, L, 6, K});
  const auto heads = [&](index_t n) { return any.all().slice(2, 0, n); };
  const auto refused = [&](index_t of_q, index_t of_k, index_t of_v, const std::string& words) {
    const gla<float> op{.q = heads(of_q), .k = heads(of_k), .v = heads(of_v), .g = heads(of_v)};
    told(check(op, {}, {}), "gla: " + words);
  };
  refused(2, 2, 3, "Hk (heads of k) = 2 must divide H (heads of v) = 3");
  refused(3, 1, 2, "H (heads of v) = 2 must divide Hq (heads of q) = 3");
  refused(2, 1, 3, "Hq (heads of q) = 2 must divide H (heads of v) = 3");
  refused(2, 3, 6, "the smaller of Hq and Hk = 2 must divide the larger = 3");
  refused(3, 2, 6, "the smaller of Hq and Hk = 2 must divide the larger = 3");
}

TEST_CASE("outputs and states over any of the fields are refused with both shapes") {
  shapes x;
  const auto refused = [&](auto op, auto field, const std::string& name) {
    using View = std::remove_cvref_t<decltype(op.*field)>;
    const auto extents = (op.*field).extents();
    std::string letters;
    for (const index_t n : extents) letters += (letters.empty() ? "" : ", ") + std::to_string(n);
    const std::string overlaps =
        " is written and overlaps " + name + " of shape [" + letters + "]; give it memory of its own";
    op.*field = View(x.o.data(), extents);
    told(check(op, {}, x.o), std::string(op.name) + ": o of shape [2, 5, 2, 4]" + overlaps);
    const auto pool = x.pool.all().slice(0, 0, B);
    op.*field = View(x.pool.data(), extents);
    told(check(op, state<float>{.final = pool}, x.o),
         std::string(op.name) + ": final of shape [2, 2, 3, 4]" + overlaps);
    told(check_backward(op, {}, x.o, state_gradient<float>{.initial = pool}, {}),
         std::string(op.name) + ": d_st.initial of shape [2, 2, 3, 4]" + overlaps);
  };
  const auto all = [&](const auto& op, const auto&... named) { (refused(op, named.first, named.second), ...); };
  const auto of = [](auto field, const char* name) { return std::pair(field, name); };
  all(x.gated(), of(&gla<float>::q, "q"), of(&gla<float>::k, "k"), of(&gla<float>::v, "v"), of(&gla<float>::g, "g"));
  all(simple_gla<float>{.q = x.k, .k = x.k, .v = x.v, .g = x.g}, of(&simple_gla<float>::g, "g"));
  all(x.retentive(), of(&retention<float>::log_gamma, "log_gamma"));
  all(x.fifth(), of(&rwkv5<float>::w, "w"), of(&rwkv5<float>::u, "u"));
  all(x.sixth(), of(&rwkv6<float>::w, "w"), of(&rwkv6<float>::u, "u"));
  all(x.kimi(), of(&kda<float>::beta, "beta"));
  all(dplr<float>{.q = x.k, .k = x.k, .v = x.v, .a = x.k, .b = x.k, .g = x.k}, of(&dplr<float>::a, "a"),
      of(&dplr<float>::b, "b"));
  all(x.seventh(), of(&rwkv7<float>::r, "r"), of(&rwkv7<float>::kk, "kk"), of(&rwkv7<float>::a, "a"));
  auto per_value = x.delta();
  per_value.beta = {};
  per_value.beta_per_value = x.v;
  all(per_value, of(&delta_rule<float>::beta_per_value, "beta_per_value"));
  tensor<float, 2> D({H, V});
  using dual = ssd<float>;
  all(dual{.x = x.v, .dt = x.beta, .A = x.gamma, .B = x.k, .C = x.k, .D = D, .z = x.v, .dt_bias = x.gamma},
      of(&dual::x, "x"), of(&dual::dt, "dt"), of(&dual::A, "A"), of(&dual::B, "B"), of(&dual::C, "C"),
      of(&dual::D, "D"), of(&dual::z, "z"), of(&dual::dt_bias, "dt_bias"));
}

TEST_CASE("sequences and slots that do not fit are told with their numbers") {
  shapes x;
  const std::vector<std::int32_t> two{0, L}, beyond{0, L + 1}, late{1, L}, falls{0, 4, 3, L}, one{L}, negative{3, -2};
  auto op = x.gated();
  op.offsets = two;
  told(check(op, {}, x.o), "gla: offsets need a batch of one packed row, got B = 2");
  const auto row = [](auto& y) { return y.all().slice(0, 0, 1); };
  gla<float> packed{.q = row(x.k), .k = row(x.k), .v = row(x.v), .g = row(x.k)};
  packed.offsets = beyond;
  told(check(packed, {}, row(x.o)), "gla: offsets must run from 0 to L = 5; they have 2 entries, from 0 to 6");
  packed.offsets = late;
  told(check(packed, {}, row(x.o)), "gla: offsets must run from 0 to L = 5; they have 2 entries, from 1 to 5");
  packed.offsets = falls;
  told(check(packed, {}, row(x.o)), "gla: offsets fall from 4 to 3 at entry 2");
  op = x.gated();
  op.lengths = one;
  told(check(op, {}, x.o), "gla: lengths has 1 entries for 2 sequences");
  op.lengths = negative;
  told(check(op, {}, x.o), "gla: lengths entry 1 is -2, must not be negative");

  op = x.gated();
  const std::vector<std::int32_t> outside{0, 8}, below{-2, 0}, same{3, 3}, starts{5, 2}, ends{4, 5};
  const auto slots = [&](const std::vector<std::int32_t>& initial, const std::vector<std::int32_t>& final,
                         const std::string& words) {
    const state<float> st{.initial = x.pool,
                          .final = x.pool,
                          .initial_slots = view<const std::int32_t, 1>(initial),
                          .final_slots = view<const std::int32_t, 1>(final)};
    told(check(op, st, x.o), "gla: " + words);
  };
  slots(one, ends, "initial_slots has 1 entries for 2 sequences");
  slots(starts, one, "final_slots has 1 entries for 2 sequences");
  slots(outside, ends, "initial_slots entry 1 is 8, must be −1 or below 8");
  slots(starts, below, "final_slots entry 0 is -2, must be −1 or below 8");
  slots(starts, same, "final_slots sends sequences 0 and 1 to one slot 3");
  slots(starts, ends, "final_slots sequence 1 writes slot 5 of the pool that sequence 0 reads it from");

  std::vector<std::int32_t> after(B * L, -1);
  std::vector<std::int64_t> before{0, 4}, behind{0, -4};
  after[7] = 9;
  state<float> st{.snapshots = x.pool, .snapshot_slots = view<const std::int32_t, 2>(after, {B, L})};
  told(check(op, st, x.o), "gla: snapshot_slots names slot 9 of snapshots, must be −1 or below 8");
  st = {.boundaries = x.pool, .boundary_slots = view<const std::int32_t, 2>(starts, {B, 1})};
  told(check(op, st, x.o), "gla: interval = 0 must be a number of tokens where boundaries are given");
  st.interval = 3;
  st.position = before;  // 0 to 5 reaches 3, 4 to 9 reaches 6 and 9
  told(check(op, st, x.o), "gla: boundary_slots has 1 slots for each sequence, but sequence 1 reaches 2 boundaries");
  st.position = behind;
  told(check(op, st, x.o), "gla: position entry 1 is -4, must not be negative");
  st.position = std::span<const std::int64_t>(before).first(1);
  told(check(op, st, x.o), "gla: position has 1 entries for 2 sequences");
  st.interval = -3;
  told(check(op, st, x.o), "gla: interval = -3 must not be negative");
}

TEST_CASE("a normaliser without its state, or a state without its normaliser, is told so") {
  shapes x;
  const linear_attention<float> op{.q = x.k, .k = x.k, .v = x.v};
  const auto pool = x.pool.all().slice(0, 0, B);
  const auto z = x.z.all().slice(0, 0, B), wide = x.v.all()[0].slice(0, 0, B);
  const std::string rest = ": the normaliser is part of the state";
  using states = linear_attention_state<float>;
  using gradients = linear_attention_state_gradient<float>;
  told(check(op, states{.initial = pool}, x.o), "linear_attention: z_initial must come with initial" + rest);
  told(check(op, states{.z_initial = z}, x.o), "linear_attention: z_initial must come with initial" + rest);
  told(check(op, states{.final = pool}, x.o), "linear_attention: z_final must come with final" + rest);
  told(check(op, states{.z_final = z}, x.o), "linear_attention: z_final must come with final" + rest);
  const auto back = [&](const gradients& d_st, const std::string& words) {
    told(check_backward(op, {}, x.o, d_st, {}), "linear_attention: d_st." + words);
  };
  back({.z_final = z}, "z_final must come with d_st.final" + rest);
  back({.z_initial = z}, "z_initial must come with d_st.initial" + rest);
  back({.final = pool, .z_final = wide}, "z_final has shape [2, 2, 4], expected [2, 2, 3] = [sequences, H, K]");
  back({.initial = pool, .z_initial = wide}, "z_initial has shape [2, 2, 4], expected [2, 2, 3] = [sequences, H, K]");
  back({.final = x.pool}, "final has shape [8, 2, 3, 4], expected [2, 2, 3, 4] = [sequences, H, K, V]");
  back({.initial = x.pool}, "initial has shape [8, 2, 3, 4], expected [2, 2, 3, 4] = [sequences, H, K, V]");
}

TEST_CASE("choices that there are not are told with those that there are") {
  shapes x;
  const auto op = x.gated();
  told(check(op, {}, x.o, {.chunk = -1}), "gla: chunk = -1 must be 0 (automatic) or a number of tokens");
  told(check(op, {}, x.o, {.time_split = -3}), "gla: time_split = -3 must be 0 (automatic) or a number of tokens");
  told(check(op, {}, x.o, {.form = form::left}), "gla: form must be automatic, recurrent or chunked");
  const linear_attention<float> attends{.q = x.k, .k = x.k, .v = x.v};
  told(check(attends, {}, x.o, {.form = form::convolution}),
       "linear_attention: form must be automatic, recurrent, left or chunked");
  told(check_backward(op, {}, x.o, {}, {}, {.form = form::recurrent}),
       "gla: form must be automatic or chunked for backward");
  auto both = x.delta();
  both.beta_per_value = x.v;
  told(check(both, {}, x.o), "delta_rule: beta and beta_per_value are both given; give one of them");
  ssd<float> dual{.x = x.v, .dt = x.beta, .A = x.gamma, .B = x.k, .C = x.k, .dt_min = 2, .dt_max = 1};
  told(check(dual, {}, x.o), "ssd: dt_min must not be above dt_max");
}
