# Small multiples: a panel per head dimension, without the causal mask above, with it below. Loaded by the script that
# ogive_crossover writes, which says where the data are and what stands in each panel.
set encoding utf8
set datafile separator comma

vermilion = '#d55e00'
blue = '#0072b2'
grey = '#aaaaaa'
grey_text = '#757575'
ink = '#333333'
faint = '#e8e8e8'

columns = 4
left_edge = 0.062
panel_width = 0.219
gap = 0.018
panel_height = 0.325
bottom(row) = row == 0 ? 0.505 : 0.115

do for [kind in 'svg png'] {
  if (kind eq 'svg') {
    set terminal svg size 1500,900 dynamic background '#ffffff' font 'DejaVu Sans,Verdana,Helvetica,sans-serif,13'
  } else {
    set terminal pngcairo size 3000,1800 background '#ffffff' font 'DejaVu Sans,13' fontscale 2 linewidth 2 pointscale 2
  }
  set output 'crossover.' . kind
  set multiplot

  set logscale x 2
  set logscale y 10
  set xrange [0.05:1.25 * most]
  set yrange [low:high]
  set border 3 linecolor rgb ink linewidth 0.8
  set tics nomirror scale 0.6 textcolor rgb ink
  set grid xtics ytics linecolor rgb faint linewidth 0.8 linetype 1
  unset key

  do for [i = 1:|dims|] {
    column = (i - 1) % columns
    set lmargin at screen left_edge + column * (panel_width + gap)
    set rmargin at screen left_edge + column * (panel_width + gap) + panel_width
    set bmargin at screen bottom(causal[i])
    set tmargin at screen bottom(causal[i]) + panel_height
    unset label
    unset arrow

    if (i == 1) {
      set label 11 title at screen left_edge, 0.955 left textcolor rgb ink font ',22'
      set label 12 'Time per token of a head. The right product Q(K^{T}V) costs the same however many tokens n; the left product (QK^{T})V and softmax attention grow with n.' \
        at screen left_edge, 0.912 left textcolor rgb ink
      set label 13 'Dashed lines: left and right product take equally many flops, counted. Dots and n*: timed, the right product overtakes the left (orange) and softmax (grey).' \
        at screen left_edge, 0.882 left textcolor rgb ink
      set label 14 caption at screen left_edge, 0.025 left textcolor rgb grey_text font ',10' noenhanced
    }
    if (column == 0) {
      set ytics format '%g'
      set ylabel (causal[i] ? 'causal' : 'non-causal') . ', µs per token' textcolor rgb ink offset 0.5,0
    } else {
      set ytics format ''
      unset ylabel
    }
    if (i == |dims|) {
      set label 5 'tokens n' at graph 1, graph -0.145 right textcolor rgb ink
    }
    set xtics ('d/16' 1. / 16, 'd/4' 0.25, 'd' 1, '4d' 4, '16d' 16, '64d' 64) font ',11'

    crossing = 1. * counted[i] / dims[i]
    set arrow 1 from first crossing, graph 0 to first crossing, graph 0.93 nohead linecolor rgb ink linewidth 1.2 dashtype (8, 5) back
    set label 1 (causal[i] ? 'n = 2d − 1' : 'n = d') at first crossing, graph 0.97 center textcolor rgb ink font ',11'
    set label 2 sprintf('{/:Bold d = %d}', dims[i]) at graph 0.03, graph 0.95 left textcolor rgb ink font ',15'
    set label 3 left_label[i] at graph 0.03, graph 0.85 left textcolor rgb vermilion font ',12'
    set label 4 softmax_label[i] at graph 0.03, graph 0.77 left textcolor rgb grey_text font ',12'

    x(n, d, mask) = d == dims[i] && mask == causal[i] ? 1. * n / d : NaN
    named(n, d, mask, at) = n == at * d ? x(n, d, mask) : NaN
    plot data skip 1 using (x($3, $1, $2)):(1e6 * $8 / $3) with lines linecolor rgb grey linewidth 5 title 'softmax attention', \
         '' skip 1 using (x($3, $1, $2)):(1e6 * $7 / $3) with lines linecolor rgb blue linewidth 2.5 title 'right product', \
         '' skip 1 using (x($3, $1, $2)):(1e6 * $6 / $3) with lines linecolor rgb vermilion linewidth 2.5 title 'left product', \
         '' skip 1 using (named($3, $1, $2, 16)):(1e6 * $8 / $3):('softmax') with labels right offset -1.5,0.4 textcolor rgb grey_text title 'softmax attention', \
         '' skip 1 using (named($3, $1, $2, 8)):(1e6 * $6 / $3):('left') with labels left offset 1,-0.5 textcolor rgb vermilion title 'left product', \
         '' skip 1 using (most + 0 * named($3, $1, $2, 4)):(1e6 * $7 / $3):(causal[i] ? 'right, in chunks' : 'right') with labels right offset 0,-0.9 textcolor rgb blue title 'right product', \
         '+' every ::0::0 using (softmax_at[i]):(softmax_height[i]) with points pointtype 7 pointsize 1.6 linecolor rgb 'white' title 'right product overtakes softmax attention', \
         '' every ::0::0 using (softmax_at[i]):(softmax_height[i]) with points pointtype 7 pointsize 1.1 linecolor rgb grey_text title 'right product overtakes softmax attention', \
         '' every ::0::0 using (left_at[i]):(left_height[i]) with points pointtype 7 pointsize 1.6 linecolor rgb 'white' title 'right product overtakes left product', \
         '' every ::0::0 using (left_at[i]):(left_height[i]) with points pointtype 7 pointsize 1.1 linecolor rgb vermilion title 'right product overtakes left product'
  }
  unset multiplot
  unset output
}
