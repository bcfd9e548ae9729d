# Time per token and channel of the forms of a time-invariant system, against the length of the sequence. Loaded by the
# script that ogive_crossover writes, which says where the data are and what the crossings are.
set encoding utf8
set datafile separator comma

vermilion = '#d55e00'
blue = '#0072b2'
green = '#009e73'
grey = '#aaaaaa'
grey_text = '#757575'
ink = '#333333'
faint = '#e8e8e8'

do for [kind in 'svg png'] {
  if (kind eq 'svg') {
    set terminal svg size 1080,640 dynamic background '#ffffff' font 'DejaVu Sans,Verdana,Helvetica,sans-serif,13'
  } else {
    set terminal pngcairo size 2160,1280 background '#ffffff' font 'DejaVu Sans,13' fontscale 2 linewidth 2 pointscale 2
  }
  set output 'forms.' . kind
  set lmargin at screen 0.085
  set rmargin at screen 0.78
  set bmargin at screen 0.145
  set tmargin at screen 0.81
  set logscale x 2
  set logscale y 10
  set xrange [least:most]
  set yrange [low:high]
  set border 3 linecolor rgb ink linewidth 0.8
  set tics nomirror scale 0.6 textcolor rgb ink
  set grid xtics ytics linecolor rgb faint linewidth 0.8 linetype 1
  set xtics format '%.0f'
  set ytics format '%g'
  set xlabel 'tokens n' textcolor rgb ink
  set ylabel 'ns per token and channel' textcolor rgb ink offset 0.5,0
  unset key
  unset label
  set label 1 title at screen 0.085, 0.945 left textcolor rgb ink font ',18'
  set label 2 system at screen 0.085, 0.895 left textcolor rgb ink noenhanced
  set label 3 'Dots: where transforms, with a kernel that is kept, overtake direct sums (grey) and the recurrence (orange).' \
    at screen 0.085, 0.855 left textcolor rgb ink
  set label 4 caption at screen 0.085, 0.028 left textcolor rgb grey_text font ',9' noenhanced
  set label 5 'direct sums' at screen 0.79, first direct_end left textcolor rgb grey_text
  set label 6 'recurrence' at screen 0.79, first recurrent_end left offset 0,(recurrent_end > made_end ? 0.45 : -0.45) textcolor rgb vermilion
  set label 7 'transforms' at screen 0.79, first made_end left offset 0,(recurrent_end > made_end ? -0.45 : 0.45) textcolor rgb blue
  set label 8 'transforms, kernel kept' at screen 0.79, first kept_end left offset 0,-0.6 textcolor rgb green

  each(seconds, n) = 1e9 * seconds / n / channels
  plot 'forms.csv' skip 1 using 1:(each($3, $1)) with lines linecolor rgb grey linewidth 4 title 'direct sums', \
       '' skip 1 using 1:(each($2, $1)) with lines linecolor rgb vermilion linewidth 2.5 title 'recurrence', \
       '' skip 1 using 1:(each($4, $1)) with lines linecolor rgb blue linewidth 2.5 title 'transforms', \
       '' skip 1 using 1:(each($5, $1)) with lines linecolor rgb green linewidth 2.5 title 'transforms, kernel kept', \
       '+' every ::0::0 using (direct_at):(direct_height) with points pointtype 7 pointsize 1.1 linecolor rgb grey_text title 'transforms overtake direct sums', \
       '' every ::0::0 using (recurrent_at):(recurrent_height) with points pointtype 7 pointsize 1.1 linecolor rgb vermilion title 'transforms overtake the recurrence'
  unset output
}
