"""The style sheet of pages: quiet, light and dark, one column on a telephone."""

PAGE_STYLE = """
:root{color-scheme:light dark}
:root{--page:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--rule:#e1e5ea;--accent:#1f6fd1}
@media (prefers-color-scheme:dark){
:root{--page:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#9aa5b4;--rule:#2c3541;--accent:#6aa9f4}
}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0}
h2{font-size:16px;margin:30px 0 0}
.notes h2{margin:0 0 8px}
header p{color:var(--soft);margin:2px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:14px;margin:14px 0}
.cards div,figure,.scroll,.notes{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.cards div{padding:14px 16px}
.cards dt{color:var(--soft);font-size:13px}
.cards dd{margin:4px 0 0}
.cards b{display:block;font-size:26px;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.cards span{color:var(--soft);font-size:13px}
.plots,.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px;align-items:start}
.wide{grid-column:1/-1}
figure{margin:0;padding:14px;overflow-x:auto}
.notes{padding:16px 20px;margin:14px 0}
.notes ul{margin:0;padding-left:20px;color:var(--soft)}
.notes li+li{margin-top:4px}
.scroll{overflow-x:auto;padding:14px 16px;min-width:0}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:8px}
th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-top:1px solid var(--rule)}
thead th{color:var(--soft);font-weight:500;border-top:0}
tbody th{font-weight:400}
th:first-child{text-align:left;padding-left:0;white-space:normal;overflow-wrap:anywhere;min-width:130px}
td:last-child,thead th:last-child{padding-right:0}
.states{display:flex;flex-wrap:wrap;gap:8px;margin:14px 0 0;padding:0;list-style:none;font-size:13px}
.states li{padding:2px 10px;border:1px solid var(--rule);border-radius:99px;background:var(--card)}
@media (max-width:520px){
main{padding:18px 12px 40px}
.cards{grid-template-columns:1fr 1fr;gap:10px}
.cards b{font-size:21px}
figure{padding:10px 6px}
figure .plot{font-size:16px;min-width:320px}
}
@media print{body{background:#fff}.scroll,figure{break-inside:avoid}}
""".strip()
